package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// entryFlags are the members of an entry of mcpServers that flags can set.
type entryFlags struct {
	command, url, cwd, kind, file string
	args, env, headers            []string
	timeout                       time.Duration
}

func (f *entryFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.command, "command", "", "the `program`, which is spoken to over stdio; instead of what follows --")
	fs.StringArrayVar(&f.args, "arg", nil, "an `argument` of it; may be repeated")
	fs.StringArrayVar(&f.env, "env", nil, "`NAME=value` in its environment; a secret is named: TOKEN='${TOKEN}'; may be repeated")
	fs.StringVar(&f.cwd, "cwd", "", "the `directory` it runs in")
	fs.StringVar(&f.url, "url", "", "the `address` of a server that is spoken to over HTTP")
	fs.StringArrayVar(&f.headers, "header", nil, "`'Name: value'` of requests to it; may be repeated")
	fs.StringVar(&f.kind, "type", "", "stdio or http, where it does not follow from the rest")
	fs.DurationVar(&f.timeout, "timeout", 0, "how long a call may take (default 30s)")
	fs.StringVarP(&f.file, "file", "f", "", "JSON `file` with the entry, or with an mcpServers that has it; - is standard input; instead of the other flags")
}

func newUpstreamsAddCommand(flags *clientFlags) *cobra.Command {
	var f entryFlags
	cmd := &cobra.Command{
		Use:   "add ID [-- COMMAND [ARG...]]",
		Short: "Add an MCP server, or change one that was added",
		Long: `Add an MCP server on all replicas, or change one that was added. A program runs on the
machine of the comet server, as comet. Secrets are named and not said: '${NAME}' is a
variable of comet's own environment, '${file:/path}' a file on its machine.`,
		Args: cobra.MinimumNArgs(1),
		Example: `  comet upstreams add memory -- npx -y @modelcontextprotocol/server-memory
  comet upstreams add github --url https://api.githubcopilot.com/mcp/ --header 'Authorization: Bearer ${GITHUB_TOKEN}'
  comet upstreams add memory --file ~/.cursor/mcp.json`,
	}
	f.register(cmd)
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := f.entry(cmd, s, args)
		if err != nil {
			return err
		}
		answer, err := s.answer(s.api.PutUpstreamWithBody(ctx, args[0], "application/json", bytes.NewReader(body)))
		if err != nil {
			return err
		}
		return s.out.show(answer, func() error {
			var saved client.UpstreamSaved
			if err := decode(answer, &saved); err != nil {
				return err
			}
			verb := "changed"
			if saved.Version == 1 {
				verb = "added"
			}
			say(s.notes, `%s %s; "comet upstreams get %s" tells how it is`, verb, saved.ID, saved.ID)
			return nil
		})
	})
}

// entry is the request: of a file, or what the flags and the command make.
func (f *entryFlags) entry(cmd *cobra.Command, s *session, args []string) ([]byte, error) {
	if dash := cmd.ArgsLenAtDash(); len(args) > 1 && dash != 1 {
		return nil, usagef("one ID, and the command after --: comet upstreams add %s -- %s", args[0], strings.Join(args[1:], " "))
	}
	members, err := f.members(cmd, args[1:])
	if err != nil {
		return nil, err
	}
	switch {
	case cmd.Flags().Changed("file") && len(members) > 0:
		return nil, usagef("--file replaces the flags and the command that describe the server; give one or the other")
	case cmd.Flags().Changed("file"):
		file, err := readInput(s.in, f.file)
		if err != nil {
			return nil, err
		}
		return entryOf(f.file, args[0], file)
	case len(members) == 0:
		return nil, usagef("a server is a program (-- COMMAND), an address (--url), or in a file (--file)")
	}
	return json.Marshal(members)
}

// members are the members of an entry that were given.
func (f *entryFlags) members(cmd *cobra.Command, command []string) (map[string]any, error) {
	out := map[string]any{}
	for flag, v := range map[string]struct {
		member string
		value  any
	}{
		"command": {"command", f.command}, "arg": {"args", f.args}, "cwd": {"cwd", f.cwd}, "url": {"url", f.url}, "type": {"type", f.kind},
		"timeout": {"comet", map[string]any{"timeout": f.timeout.String()}},
	} {
		if cmd.Flags().Changed(flag) {
			out[v.member] = v.value
		}
	}
	if len(command) > 0 {
		if out["command"] != nil || out["args"] != nil {
			return nil, usagef("the command is given twice: by --command or --arg, and after --")
		}
		out["command"] = command[0]
		if len(command) > 1 {
			out["args"] = command[1:]
		}
	}
	for _, list := range []struct {
		flag, member, between, form string
		pairs                       []string
	}{{"env", "env", "=", "NAME=value", f.env}, {"header", "headers", ":", "'Name: value'", f.headers}} {
		values := map[string]string{}
		for _, pair := range list.pairs {
			name, value, ok := strings.Cut(pair, list.between)
			if !ok || name == "" { // the value may be a secret that somebody said
				return nil, usagef("--%s must be of the form %s", list.flag, list.form)
			}
			if list.flag == "header" {
				value = strings.TrimSpace(value)
			}
			values[name] = value
		}
		if len(values) > 0 {
			out[list.member] = values
		}
	}
	return out, nil
}

// entryOf finds an entry in a file: the file itself, or the one of that id in its mcpServers,
// which some clients call servers.
func entryOf(file, id string, data []byte) ([]byte, error) {
	if file == "-" {
		file = "standard input"
	}
	if err := checkJSON(data); err != nil {
		return nil, usagef("%s must hold a JSON object: %w", file, err)
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return nil, usagef("%s must hold a JSON object", file)
	}
	for _, name := range []string{"mcpServers", "servers"} {
		if whole[name] == nil {
			continue
		}
		var all map[string]json.RawMessage
		if err := json.Unmarshal(whole[name], &all); err != nil {
			return nil, usagef("%s: %s must be an object", file, name)
		}
		if entry := all[id]; entry != nil {
			return entry, nil
		}
		ids := make([]string, 0, len(all))
		for other := range all {
			ids = append(ids, other)
		}
		slices.Sort(ids)
		if len(ids) == 0 {
			return nil, usagef("%s has no server %s; its %s is empty", file, id, name)
		}
		return nil, usagef("%s has no server %s; it has %s", file, id, strings.Join(ids, ", "))
	}
	return data, nil
}
