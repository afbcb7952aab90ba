"""Shared media in a simulation: channels, the links that send over them, clients of a population, cross traffic."""
