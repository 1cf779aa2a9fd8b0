"""Offer of the emulated Azure: sizes by region, quotas, prices."""
