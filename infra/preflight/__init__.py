"""Offers, quotas and prices of Azure: queried and judged before a cluster is made, and listed afterwards."""
