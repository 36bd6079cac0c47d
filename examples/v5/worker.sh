#!/usr/bin/env bash
# A whole worker of PROTOCOL_V5 over TCP: it can "shout", and needs nothing but bash.
#
#   comet serve --v5-listen 127.0.0.1:7005
#   ./worker.sh [127.0.0.1 7005]
#
# It registers itself as the agent v5-shouter. When the line ends, so does it.
exec 3<>"/dev/tcp/${1:-127.0.0.1}/${2:-7005}" || exit
echo 'M1|W1>O1|J|T0|-|-|-|0|S0|-|name=shouter;caps=shout' >&3
while IFS='|' read -r -t 60 msg route type task pri state err depth ctx budget data <&3 || [ $? -gt 128 ]; do
  case $type in
  A) me=${route#*>} ;;                                        # joined; O1 says who this is
  R | X) text=${data#*text=} && text=${text%%;*}              # work: call=shout;text=hello
    echo "$msg|$me>${route%>*}|S|$task|$pri|D|-|$depth|$ctx|$budget|${text^^}" >&3 ;;
  '') echo "M2|$me>O1|H|T0|-|-|-|0|S0|-|load=0%" >&3 ;;       # nothing for a minute
  esac
done
