"""The tests. Failed assertions of the public cases show their values too."""

import pytest

pytest.register_assert_rewrite("edgebed.testing.drivers", "edgebed.testing.fabrics")
