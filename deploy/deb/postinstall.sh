#!/bin/sh
# Creates the user of the service. The service is neither enabled nor started by the first
# installation; an upgrade restarts it if it runs.
set -e
if ! getent passwd comet >/dev/null; then
	adduser --system --group --home /var/lib/comet --no-create-home --quiet comet
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart comet.service
fi
