"""Shared media: channels that several links cross, their sharing rules, and cross traffic."""
