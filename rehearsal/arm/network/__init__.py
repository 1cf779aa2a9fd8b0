"""Microsoft.Network as emulated: virtual networks, load balancers, private endpoints."""
