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
		return "", usagef("the file %s contains no key", path)
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
		Long: `Create the agents of a roster that do not exist and change those that do, in one
transaction: an error in the roster changes nothing. Agents that the roster does not
list stay unchanged. FILE is YAML or JSON; - reads standard input.`,
		Example: `  comet import examples/roster.yaml --dry-run
  comet export | comet import --server http://other:8080 -`,
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing; list the changes, and every error with its line")
	cmd.Flags().StringVar(&format, "format", "", "`format` of the file, yaml or json (default: by its name or content)")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "idempotency `key`; a repeated request with the same key gets the first response")
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
