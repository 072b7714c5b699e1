"""The rules of custom resources, carried out: pruning, defaults, schema and CEL.

One implementation for everybody: the embedded API server's admission, `karpenter validate`, and tests.
"""

from karpenter.apis.validation.errors import FieldError
from karpenter.apis.validation.schema import SchemaValidator

__all__ = ["FieldError", "SchemaValidator"]
