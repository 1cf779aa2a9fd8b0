"""What a stack may be set to: its settings, read and checked as a whole before anything is created."""

from infra.config.schema import ClusterConfig, ConfigError, parse

__all__ = ["ClusterConfig", "ConfigError", "parse"]
