package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

func newImportCommand() *cobra.Command {
	var (
		dryRun      bool
		format, key string
	)
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Create and change agents from a roster",
		Long: `Create the agents of a roster that do not exist and change those that do: all of
them, or none where anything is wrong. Agents the roster does not list stay as they
are. FILE is YAML or JSON; - reads standard input.`,
		Example: `  comet import examples/roster.yaml --dry-run
  comet export | comet import --server http://other:8080 -`,
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing; say what would change and list every mistake with its line")
	cmd.Flags().StringVar(&format, "format", "", "`format` of the file, yaml or json; by its name or content if not given")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "`key` that makes a repeated request answer as the first one did")
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
		params := client.ImportRosterParams{DryRun: given(cmd, "dry-run", dryRun), IdempotencyKey: given(cmd, "idempotency-key", key)}
		body, err := s.answer(s.api.ImportRosterWithBody(ctx, &params, mediaType, bytes.NewReader(data)))
		if refused := (*apiError)(nil); errors.As(err, &refused) {
			refused.file = name
		}
		if err != nil {
			return err
		}
		return showReport(s, name, body)
	})
}

// rosterType is the media type of a roster: as it was said, else by the name,
// else by the first character.
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
		reportFields(s.notes, []client.FieldError{{Detail: "warning: " + w.Detail, Line: w.Line}}, file)
	}
	err := s.out.show(body, func() error {
		if !r.Valid {
			return nil // the mistakes say more than a plan that cannot be
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
		say(s.out.w, "%s %s: %s created, %s updated, %s unchanged", verb, count(r.Agents, "agent", "agents"),
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
		Long:    `Print every agent, or those below --root, as a roster that "comet import" takes back.`,
		Example: `  comet export > roster.yaml`,
	}
	cmd.Flags().StringVar(&format, "format", "", "`format` of the roster, yaml or json (default: as -o says, else yaml)")
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
		body, err := s.answer(s.api.ExportRoster(ctx, &client.ExportRosterParams{
			Root: given(cmd, "root", root), Format: new(client.ExportRosterParamsFormat(format)),
		}))
		if err != nil {
			return err
		}
		_, err = s.out.w.Write(body)
		return err
	})
}
