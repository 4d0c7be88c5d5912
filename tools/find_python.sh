#!/bin/sh
# Prints the Python that the environment is made with: the one given as the first argument, or else the first on the
# PATH that is new enough and can make environments. Otherwise says what to install, and fails.

is_new_enough='import sys; sys.exit(sys.version_info < (3, 10))'
makes_environments='import ensurepip, venv'
without_venv=''

for candidate in ${1:-python3 python3.14 python3.13 python3.12 python3.11 python3.10 python}; do
    "$candidate" -c "$is_new_enough" 2>/dev/null || continue
    if "$candidate" -c "$makes_environments" 2>/dev/null; then
        echo "$candidate"
        exit 0
    fi
    without_venv="${without_venv:-$candidate}"
done

if [ -n "$without_venv" ]; then
    version=$("$without_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "$without_venv (Python $version) cannot make environments: its module 'venv' or 'ensurepip' is missing." >&2
    echo "On Debian and Ubuntu: apt install python$version-venv. Then run make again." >&2
elif [ -n "$1" ]; then
    echo "PYTHON=$1 is not there or older than Python 3.10. Name a newer one, or leave PYTHON away." >&2
else
    echo "Ostinato needs Python 3.10 or newer, and none was found on the PATH." >&2
    echo "Install one, or name it: make PYTHON=/path/to/python3.12 ..." >&2
fi
exit 1
