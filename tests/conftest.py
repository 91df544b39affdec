"""How hypothesis runs: without deadlines, and always alike where a failure would block others."""

import os

from hypothesis import settings

# A busy machine must not fail a property that holds, so no example has a deadline.
settings.register_profile("developer", deadline=None)
# Elsewhere new examples are tried every time; on CI a change is judged by the same ones each time.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "developer")
