"""The rank's side of the contract with Stoker (docs/contract.md): environment, channel, reports, requests, flight records."""
