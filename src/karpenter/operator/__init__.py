"""The assembly: options, logging, health, leader election. The only room that knows all the others."""
