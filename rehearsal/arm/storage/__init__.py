"""Microsoft.Storage as emulated: accounts, containers, shares, blobs."""
