package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"comet/internal/input"
	"comet/openapi/client"
)

// showUpstreamLog prints the warnings and the standard error of an upstream server.
func showUpstreamLog(c *call, body []byte) error {
	var u client.UpstreamView
	if err := decode(body, &u); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"Warnings:", u.Warnings}, {"Standard error:", u.Stderr}} {
		if len(part.lines) > 0 {
			printLine(c.out.w, "\n%s", part.title)
		}
		for _, line := range part.lines {
			printLine(c.out.w, "  %s", line)
		}
	}
	return nil
}

// showDefinitions lists the tools of an upstream server, or shows one.
func showDefinitions(ctx context.Context, c *call) error {
	if len(c.args) == 1 {
		return sendAndShow(ctx, c)
	}
	body, err := c.send(ctx, c.request)
	if err != nil {
		return err
	}
	var list struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := decode(body, &list); err != nil {
		return err
	}
	for _, raw := range list.Tools {
		var d client.ToolDefinitionView
		if err := decode(raw, &d); err != nil {
			return err
		}
		if d.Tool == c.args[1] || d.ID == c.args[1] {
			c.rows, c.columns = "", nil
			c.fields = []column{
				{"Tool", "id"}, {"State", "state"}, {"Set class", "class"}, {"First seen", "first_seen_at"}, {"Changed", "changed_at"},
				{"Approved", "{{with .approved_at}}{{.}} by {{$.approved_by}}{{end}}"}, {"Approved digest", "digest"}, {"Pending digest", "pending_digest"},
			}
			if d.PendingDigest != nil {
				printLine(c.messages, "to approve it: comet tools approve %s --digest %s", shellWord(d.ID), *d.PendingDigest)
			}
			return c.printResponse(raw)
		}
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
	given, err := c.values()
	switch {
	case err != nil:
		return err
	case c.changed("file") && len(given)+len(command) > 0:
		return usagef("--file replaces the flags and the command that describe the server; give one or the other")
	case c.changed("file"):
		return c.addUpstreamFrom(ctx, c.flagText("file"))
	case len(command) > 0 && (c.changed("command") || c.changed("arg")):
		return usagef("the command is given twice: by --command or --arg, and after --")
	case len(given)+len(command) == 0:
		return usagef("give a command after --, or --url, or --file")
	}
	c.fixed = maps.Clone(c.fixed)
	if len(command) > 0 {
		c.fixed = map[string]any{"command": command[0]}
	}
	if len(command) > 1 {
		c.fixed["args"] = command[1:]
	}
	return sendAndShow(ctx, c)
}

// addUpstreamFrom adds the server of a file.
func (c *call) addUpstreamFrom(ctx context.Context, file string) error {
	data, err := readInput(c.in, file)
	if err != nil {
		return err
	}
	entry, err := entryOf(nameOf(file), c.args[0], data)
	if err != nil {
		return err
	}
	body, err := c.readResponse(c.api.PutUpstreamWithBody(ctx, c.args[0], "application/json", bytes.NewReader(entry)))
	if err != nil {
		return err
	}
	return c.printResponse(body)
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
