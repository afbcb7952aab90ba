"""Shared media in a scenario: the sections `shared`, `routes` and `cross_traffic`."""
