#!/bin/sh
# Answers with the parameter "text". For comet worker:
#
#   comet worker --type desktop --capability custom:echo -- ./echo.sh
#   comet send echo text=hello
set -eu
echo "::progress 50 thinking of an echo"
echo "${COMET_PARAM_TEXT:?the parameter text is missing}"
