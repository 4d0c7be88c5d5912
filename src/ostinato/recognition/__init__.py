"""Face recognition with very many identities: a class-sharded margin softmax, its backbones, data and verification."""
