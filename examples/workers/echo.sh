#!/bin/sh
# Prints the parameter "text". Run it with comet worker:
#
#   comet worker --type desktop --capability custom:echo -- ./echo.sh
#   comet send echo text=hello
set -eu
echo "::progress 50 preparing the echo"
echo "${COMET_PARAM_TEXT:?the parameter text is missing}"
