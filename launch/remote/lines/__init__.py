"""The numbers in ranks' lines."""
