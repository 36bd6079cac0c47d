package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// Parameters of agents that several commands have.
var (
	agentName         = param{"--name", "name", text, "display `name`"}
	agentDescription  = param{"--description", "description", text, "what the agent is for"}
	agentType         = param{"--type", "type", text, "`type` in the envelope protocol: infra, desktop, code, research or another word"}
	agentParent       = param{"--parent", "parent_id", text, "the `agent` above it"}
	agentSphere       = param{"--sphere", "sphere_id", number, "sphere (1-9)"}
	agentBudget       = param{"--budget", "token_budget", number, "tokens that it may use per day"}
	agentScope        = param{"--budget-scope", "budget_scope", oneOf("own", "subtree"), "what the budget limits: own, the agent alone, or subtree, the agent and all agents below it"}
	agentCapabilities = param{"--capability", "capabilities", textList, "a `capability`; may be repeated, or a list with commas"}
	ifMatch           = param{"--if-match", "If-Match", text, "change the agent only while it has this `ETag`"}
	auditReason       = param{"--reason", "reason", text, "why, for the audit log"}
	keyRequired       = param{"--required", "required", yesOrNo, "every message of the agent must be signed (default: as before)"}
)

var agentFields = []column{
	{"ID", "id"}, {"Name", "name"}, {"Level", "L{{.level}}"}, {"Sphere", "sphere_id"}, {"Frequency", "{{.frequency_hz}} Hz"}, {"Type", "type"},
	{"Parent", "parent_id"}, {"Active", "is_active"}, {"Description", "description"}, {"Capabilities", "capabilities"},
	{"Children", `{{range $i, $c := .children}}{{if $i}}, {{end}}{{$c.id}}{{end}}`},
	{"Token budget", "{{budget .token_budget}} per day"}, {"Budget limits", "{{scope .budget_scope}}"},
	{"Used today", "tokens_used_today"}, {"Sessions today", "stats.sessions_today"}, {"Average response", "{{.stats.avg_response_time_ms}} ms"},
	{"Success rate", "{{percent .stats.success_rate}}"}, {"Created", "created_at"}, {"Updated", "updated_at"},
}

var keyFields = []column{
	{"Agent", "agent_id"}, {"Number", "v5_id"}, {"Key", "fingerprint"}, {"Required", "required"}, {"Created", "{{.created_at}} by {{.created_by}}"},
}

const keyMessage = `{{if .key}}made the key {{.fingerprint}} for {{.agent_id}} ({{.v5_id}}); it is shown only once:` +
	`{{else}}{{.agent_id}} ({{.v5_id}}) has the key {{.fingerprint}} now{{end}}`

var agentGroups = []commandGroup{
	{name: "agents", aliases: []string{"agent"}, short: "List, show and change agents"},
	{name: "agents key", short: "Manage the keys that agents sign with"},
}

var agentCommands = []command{
	{
		use: "agents list", short: "List agents",
		example: `  comet agents list --sphere 1 --level 3
  comet agents list --capability budgeting --active -o json`,
		request: "GET /api/v1/agents", fixed: map[string]any{"total": false},
		params: []param{
			{"--sphere", "sphere_id", number, "only agents of this sphere (1-9)"},
			{"--level", "level", number, "only agents of this level (0-3)"},
			{"--frequency", "frequency", number, "only agents at this frequency, in Hz"},
			{"--active", "active", yesOrNo, "only active agents; --active=false for only inactive ones"},
			{"--parent", "parent_id", text, "only agents directly under this `agent`"},
			{"--capability", "capability", textList, "only agents with this `capability`; may be repeated"},
			{"--search -q", "q", text, "only agents whose id, name or description contains this `text`"},
			{"--sort", "sort", oneOf("id", "name", "level", "created_at", "-id", "-name", "-level", "-created_at"), "`order`: id, name, level or created_at; a leading - reverses it"},
			limitFlag,
		},
		pages: "agents",
		columns: []column{
			{"ID", "id"}, {"NAME", "name"}, {"LEVEL", "L{{.level}}"}, {"SPHERE", "sphere_id"}, {"HZ", "frequency_hz"}, {"PARENT", "parent_id"},
			{"BUDGET", "{{budget .token_budget}}"}, {"ACTIVE", "is_active"}, {"CAPABILITIES", "capabilities"},
		},
	},
	{use: "agents get ID", short: "Show an agent", request: "GET /api/v1/agents/{agent_id}", fields: agentFields},
	{
		use: "agents create [ID]", short: "Create an agent",
		example: `  comet agents create daily-standup-assistant --name "Daily Standup Assistant" --level 3 --sphere 2 \
      --frequency 444 --parent project-business --capability scheduling,reminders --budget 15000
  comet agents create -f agent.json`,
		request: "POST /api/v1/agents",
		params: []param{
			{"ID", "id", text, ""}, agentName, agentDescription, agentType, agentParent,
			{"--level", "level", number, "level (1-3)"},
			agentSphere,
			{"--frequency", "frequency_hz", number, "frequency in Hz: L1 888, L2 555 or 666, L3 444"},
			agentBudget, agentScope, agentCapabilities, fileFlag, idempotencyKey,
		},
		message: "created {{.id}}",
	},
	{
		use: "agents update ID", short: "Change an agent; only what is given changes",
		example: `  comet agents update custom-assistant --budget 25000
  echo '{"name": "New Name"}' | comet agents update custom-assistant -f -`,
		request: "PATCH /api/v1/agents/{agent_id}",
		params: []param{
			agentName, agentDescription, agentType, agentParent, agentSphere, agentBudget, agentScope, agentCapabilities, fileFlag,
			{"--active", "is_active", yesOrNo, "--active restores the agent, --active=false deactivates it"},
			ifMatch,
		},
		fields: agentFields,
	},
	{
		use: "agents delete ID", short: "Deactivate an agent",
		long:    `Deactivate an agent. It stays in the registry, and "comet agents restore" restores it.`,
		request: "DELETE /api/v1/agents/{agent_id}", params: []param{ifMatch}, message: "deactivated {{.ID}}",
	},
	{
		use: "agents restore ID", short: "Restore a deactivated agent",
		request: "PATCH /api/v1/agents/{agent_id}", fixed: map[string]any{"is_active": true}, fields: agentFields,
	},
	{
		use: "agents audit ID", short: "Show the changes of an agent, newest first",
		request: "GET /api/v1/agents/{agent_id}/audit", params: []param{limitFlag},
		pages: "entries",
		columns: []column{
			{"TIME", "at"}, {"ACTION", "action"}, {"BY", "actor"}, {"VERSION", "version"}, {"REASON", "{{with .reason}}{{.}}{{end}}"},
			{"CHANGES", `{{range $i, $c := .changes}}{{if $i}}; {{end}}{{$c.field}}: {{json $c.from}} -> {{json $c.to}}{{end}}`},
		},
	},
	{
		use: "agents key issue ID", short: "Make a new key for an agent",
		long: `Make a new key for an agent, which replaces the one it had. The key is printed to standard
output, only once; everything else goes to standard error, so KEY=$(comet agents key issue …) works.`,
		request: "PUT /api/v1/agents/{agent_id}/key", params: []param{keyRequired}, message: keyMessage, secret: "key",
	},
	{
		use: "agents key import ID FILE", short: "Import a key that was agreed on elsewhere",
		long: `Import a key that was agreed on elsewhere: 16 to 128 bytes of text, read from a file, or from
standard input if FILE is -, never from the command line. One trailing line break is not part of it.`,
		example: `  pass show comet/shouter | comet agents key import v5-shouter - --required`,
		request: "PUT /api/v1/agents/{agent_id}/key", params: []param{{"FILE", "key", keyFile, ""}, keyRequired}, message: keyMessage, secret: "key",
	},
	{use: "agents key show ID", short: "Show the fingerprint of an agent's key, and the agent's number", request: "GET /api/v1/agents/{agent_id}/key", fields: keyFields},
	{
		use: "agents key require ID", short: "Require signatures of an agent",
		request: "PATCH /api/v1/agents/{agent_id}/key", params: []param{{"--off", "required", notSet, "require no signatures any more"}},
		fixed: map[string]any{"required": true}, fields: keyFields,
	},
	{use: "agents key revoke ID", short: "Revoke an agent's key", request: "DELETE /api/v1/agents/{agent_id}/key", message: "revoked the key of {{.ID}}"},
	{
		use: "hierarchy [ROOT]", short: "Draw the tree of agents",
		example: `  comet hierarchy
  comet hierarchy orch-personnel --depth 1
  comet hierarchy --usage`,
		request: "GET /api/v1/hierarchy",
		params: []param{
			{"ROOT", "root", text, ""},
			{"--depth", "depth", number, "how many levels below the root (0-3); all if not given"},
			{"--active", "active_only", yesOrNo, "leave out inactive agents"},
			{"--usage", "usage", yesOrNo, "show what each agent used today, alone and with all agents below it"},
		},
		show: showHierarchy,
	},
}

func showHierarchy(s *session, body []byte) error {
	var h client.Hierarchy
	if err := decode(body, &h); err != nil {
		return err
	}
	s.draw(h.Root, "", "")
	return nil
}

// draw prints a node after its branch, and the nodes below it, whose lines begin with indent.
func (s *session) draw(n client.HierarchyNode, branch, indent string) {
	state := ""
	if !n.IsActive {
		state = ", inactive"
	}
	printLine(s.out.w, "%s%s (%s%s)%s", branch, n.ID, fmt.Sprintf("L%d, %dHz", n.Level, n.FrequencyHz), state, usedToday(n.Usage))
	for i, child := range n.Children {
		if i == len(n.Children)-1 {
			s.draw(child, indent+"└── ", indent+"    ")
		} else {
			s.draw(child, indent+"├── ", indent+"│   ")
		}
	}
}

// usedToday is what an agent used of its budget today, and what it and all agents below it
// used if that is more; "" if usage was not requested.
func usedToday(u *client.NodeUsage) string {
	if u == nil {
		return ""
	}
	text := fmt.Sprintf(": %d", u.UsedToday)
	if u.TokenBudget != nil {
		text += fmt.Sprintf(" of %s", budgetToday(u))
	}
	if u.SubtreeUsedToday != u.UsedToday {
		text += fmt.Sprintf(", %d with all below", u.SubtreeUsedToday)
	}
	return text
}

// readKey reads a key from a file, or from standard input if path is "-". One trailing line
// break is not part of the key.
func readKey(in io.Reader, path string) (string, error) {
	data, err := readInput(in, path)
	if err != nil {
		return "", err
	}
	key := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case !utf8.ValidString(key): // JSON cannot hold it unchanged
		return "", usagef("the key must be text in UTF-8")
	case key == "":
		return "", usagef("the file %s holds no key", path)
	}
	return key, nil
}

func newImportCommand() *cobra.Command {
	var (
		dryRun      bool
		format, key string
	)
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Create and change agents from a roster",
		Long: `Create the agents of a roster that do not exist and change those that do: all of
them, or none if there is a mistake. Agents that the roster does not list stay as they
are. FILE is YAML or JSON; - reads standard input.`,
		Example: `  comet import examples/roster.yaml --dry-run
  comet export | comet import --server http://other:8080 -`,
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing; say what would change and list every mistake with its line")
	cmd.Flags().StringVar(&format, "format", "", "`format` of the file, yaml or json; by its name or content if not given")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "a `key`; a request that is repeated with it gets the response of the first")
	flags := addClientFlags(cmd)
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		data, err := readInput(s.in, args[0])
		if err != nil {
			return err
		}
		mediaType, err := rosterType(format, args[0], data)
		if err != nil {
			return err
		}
		name := args[0]
		if name == "-" {
			name = "standard input"
		}
		params := client.ImportRosterParams{DryRun: flagValue(cmd, "dry-run", dryRun), IdempotencyKey: flagValue(cmd, "idempotency-key", key)}
		body, err := s.readResponse(s.api.ImportRosterWithBody(ctx, &params, mediaType, bytes.NewReader(data)))
		if refused := (*apiError)(nil); errors.As(err, &refused) {
			refused.file = name
		}
		if err != nil {
			return err
		}
		return showReport(s, name, body)
	})
}

// rosterType is the media type of a roster: by --format, by the file name, or by the first
// character.
func rosterType(format, path string, data []byte) (string, error) {
	if format == "" {
		switch strings.ToLower(filepath.Ext(path)) {
		case ".json":
			format = formatJSON
		case ".yaml", ".yml":
			format = formatYAML
		default:
			format = formatYAML
			if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
				format = formatJSON
			}
		}
	}
	switch format {
	case formatJSON:
		return "application/json", nil
	case formatYAML:
		return "application/yaml", nil
	}
	return "", usagef("--format must be yaml or json, not %q", format)
}

// showReport prints what an import did, or would do.
func showReport(s *session, file string, body []byte) error {
	var r client.ImportReport
	if err := decode(body, &r); err != nil {
		return err
	}
	for _, w := range r.Warnings {
		reportFields(s.messages, []client.FieldError{{Detail: "warning: " + w.Detail, Line: w.Line}}, file)
	}
	err := s.out.show(body, func() error {
		if !r.Valid {
			return nil // the mistakes are printed instead
		}
		if r.DryRun {
			rows := make([][]string, len(r.Changes))
			for i, c := range r.Changes {
				rows[i] = []string{optional(&c.Line), string(c.Action), c.ID}
			}
			if len(rows) > 0 {
				if err := s.out.table([]string{"LINE", "WOULD BE", "ID"}, rows); err != nil {
					return err
				}
			}
		}
		verb := "imported"
		if r.DryRun {
			verb = "dry run of"
		}
		printLine(s.out.w, "%s %s: %s created, %s updated, %s unchanged", verb, count(r.Agents, "agent", "agents"),
			optional(&r.Created), optional(&r.Updated), optional(&r.Unchanged))
		return nil
	})
	if err == nil && !r.Valid {
		return &invalidError{file: file, violations: r.Violations}
	}
	return err
}

func newExportCommand() *cobra.Command {
	var format, root string
	cmd := &cobra.Command{
		Use:     "export",
		Short:   "Print every agent as a roster",
		Long:    `Print every agent, or those below --root, as a roster that "comet import" accepts.`,
		Example: `  comet export > roster.yaml`,
	}
	cmd.Flags().StringVar(&format, "format", "", "`format` of the roster, yaml or json (default: that of -o, else yaml)")
	cmd.Flags().StringVar(&root, "root", "", "only this `agent` and those below it")
	flags := addClientFlags(cmd)
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		if format == "" {
			format = formatYAML
			if s.out.format == formatJSON {
				format = formatJSON
			}
		}
		if format != formatYAML && format != formatJSON {
			return usagef("--format must be yaml or json, not %q", format)
		}
		body, err := s.readResponse(s.api.ExportRoster(ctx, &client.ExportRosterParams{
			Root: flagValue(cmd, "root", root), Format: new(client.ExportRosterParamsFormat(format)),
		}))
		if err != nil {
			return err
		}
		_, err = s.out.w.Write(body)
		return err
	})
}
