"""The program of a server: ``python -m ostinato.kvstore.server_process``, as ``ostinato launch --servers N`` starts it.

It is told everything by environment variables, see :mod:`ostinato.kvstore.server_settings`.
"""

from __future__ import annotations

import os
import sys

from ostinato.errors import BadInputError
from ostinato.kvstore.server_core import ServerCore
from ostinato.kvstore.server_desk import ServerDesk
from ostinato.kvstore.server_settings import SERVER, SERVERS, number_from, settings_from
from ostinato.kvstore.transport_gloo import serve


def main() -> int:
    """Serve until all workers have finished; the exit status."""
    settings = settings_from(os.environ)
    if settings is None:
        raise BadInputError(f"{SERVERS} is not set.", advice="Start servers with 'ostinato launch --servers N'.")
    core = ServerCore(settings.workers, staleness=settings.staleness)
    desk = ServerDesk(core, patience=min(5.0, settings.timeout / 4))
    return 0 if serve(desk, settings.rendezvous, number_from(os.environ, SERVER), settings.timeout) else 1


if __name__ == "__main__":
    sys.exit(main())
