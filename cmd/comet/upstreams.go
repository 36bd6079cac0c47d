package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"comet/internal/input"
	"comet/openapi/client"
)

// showDefinitions lists the tools of an upstream server, or shows one.
func showDefinitions(ctx context.Context, c *call) error {
	if len(c.args) == 1 {
		c.fields = nil
		return sendAndShow(ctx, c)
	}
	body, err := c.send(ctx)
	if err != nil {
		return err
	}
	var list struct{ Tools []json.RawMessage }
	if err := decode(body, &list); err != nil {
		return err
	}
	c.rows = ""
	for _, raw := range list.Tools {
		var d client.ToolDefinitionView
		if err := decode(raw, &d); err != nil {
			return err
		}
		if d.Tool != c.args[1] && d.ID != c.args[1] {
			continue
		}
		if d.PendingDigest != nil {
			printLine(c.messages, "to approve it: comet tools approve %s --digest %s", shellWord(d.ID), *d.PendingDigest)
		}
		return c.printResponse(raw)
	}
	detail := fmt.Sprintf("the upstream %q has no tool %q", c.args[0], c.args[1])
	return &apiError{status: http.StatusNotFound, problem: client.Problem{Title: "Not found", Detail: &detail}}
}

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
	described := len(command) + len(c.sent)
	switch {
	case c.changed("file") && described > 0:
		return usagef("--file replaces the flags and the command that describe the server; give one or the other")
	case c.changed("file"):
		file := given[string](c, "file")
		data, err := c.readInput(file)
		if err != nil {
			return err
		}
		if c.sent["*"], err = entryOf(nameOf(file), c.args[0], data); err != nil {
			return err
		}
	case len(command) > 0 && (c.changed("command") || c.changed("arg")):
		return usagef("the command is given twice: by --command or --arg, and after --")
	case described == 0:
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

// entryOf finds an entry in a file: the file itself, or the entry with that id in its
// mcpServers, which some clients call servers.
func entryOf(file, id string, data []byte) ([]byte, error) {
	object, err := readObject(file, data)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"mcpServers", "servers"} {
		all := object.Member(name)
		if all == nil {
			continue
		}
		if all.Value.Kind != input.Object {
			return nil, usagef("%s: %s must be an object", file, name)
		}
		if entry := all.Value.Member(id); entry != nil {
			return entry.Value.JSON(), nil
		}
		var ids []string
		for _, m := range all.Value.Members {
			ids = append(ids, m.Name)
		}
		if len(ids) == 0 {
			return nil, usagef("%s has no server %s; its %s is empty", file, id, name)
		}
		slices.Sort(ids)
		return nil, usagef("%s has no server %s; it has %s", file, id, strings.Join(ids, ", "))
	}
	return data, nil
}
