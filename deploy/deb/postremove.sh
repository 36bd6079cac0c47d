#!/bin/sh
# The data in /var/lib/comet and the user stay.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
