#!/usr/bin/env bash
# A complete PROTOCOL_V5 worker over TCP with the capability "shout". It needs only bash.
#
#   comet serve --v5-listen 127.0.0.1:7005 --v5-self-registration
#   ./worker.sh [127.0.0.1 7005]
#
# It registers itself as the agent v5-shouter, and ends with its connection.
exec 3<>"/dev/tcp/${1:-127.0.0.1}/${2:-7005}" || exit
echo 'M1|W1>O1|J|T0|-|-|-|0|S0|-|name=shouter;caps=shout' >&3
while IFS='|' read -r -t 60 msg route type task pri state err depth ctx budget data <&3 || [ $? -gt 128 ]; do
  case $type in
  A) me=${route#*>} ;;                                        # the reply to J: O1 assigns the address
  R | X) text=${data#*text=} && text=${text%%;*}              # a task: call=shout;text=hello
    echo "$msg|$me>${route%>*}|S|$task|$pri|D|-|$depth|$ctx|$budget|${text^^}" >&3 ;;
  '') echo "M2|$me>O1|H|T0|-|-|-|0|S0|-|load=0%" >&3 ;;       # a heartbeat after a minute without messages
  esac
done
