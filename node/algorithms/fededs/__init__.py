"""FedEDS: its roles (`roles`), its parameters, the encryptor and the encrypted sets."""
