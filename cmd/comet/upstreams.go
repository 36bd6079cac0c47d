package main

import (
	"context"
	"regexp"
	"strings"
)

// shellWord quotes a word for a shell: an MCP server chooses the names of its tools, and a
// person copies the line.
func shellWord(word string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_.:/-]+$`).MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func addUpstream(ctx context.Context, c *call) error {
	command := c.args[1:]
	if c.cmd.ArgsLenAtDash() != 1 && len(command) > 0 {
		return usagef("give one ID, and the command after --: comet upstreams add %s -- %s", c.args[0], strings.Join(command, " "))
	}
	switch {
	case len(command) > 0 && (c.changed("command") || c.changed("arg")):
		return usagef("the command is given twice: by --command or --arg, and after --")
	case len(command)+len(c.sent) == 0:
		return usagef("give a command after --, or --url, or --file")
	}
	if len(command) > 0 {
		c.sent["command"] = command[0]
	}
	if len(command) > 1 {
		c.sent["args"] = command[1:]
	}
	return sendAndShow(ctx, c)
}
