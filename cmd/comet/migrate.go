package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"comet/internal/app"
	"comet/internal/config"
)

// newMigrateCommand shows and changes the schema of the configured database.
func newMigrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Show or change the database's schema",
		Long: `Show or change the schema of the database that comet serve would use. The server
applies pending migrations itself when it starts; these commands are for doing it
beforehand, or for going back.`,
	}
	config.Flags(cmd.PersistentFlags())
	cmd.AddCommand(
		migrateAction("status", "List the migrations and when they were applied", printStatus),
		migrateAction("up", "Apply every pending migration", func(cmd *cobra.Command, m *app.Migrations) error {
			return printDone(cmd, "applied", m.Up)
		}),
		migrateAction("down", "Undo the newest applied migration; what its tables held is lost", func(cmd *cobra.Command, m *app.Migrations) error {
			return printDone(cmd, "undone", m.Down)
		}),
	)
	return cmd
}

func migrateAction(use, short string, run func(*cobra.Command, *app.Migrations) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(config.Sources{Flags: cmd.Flags(), Environ: os.Environ()})
			if err != nil {
				return err
			}
			return app.WithMigrations(cfg, func(m *app.Migrations) error { return run(cmd, m) })
		},
	}
}

func printStatus(cmd *cobra.Command, m *app.Migrations) error {
	all, err := m.Status(cmd.Context())
	if err != nil {
		return err
	}
	rows := make([][]string, len(all))
	for i, s := range all {
		applied := "pending"
		if s.Applied != nil {
			applied = s.Applied.Format(time.RFC3339)
		}
		rows[i] = []string{fmt.Sprint(s.Version), s.Name, applied}
	}
	return output{w: cmd.OutOrStdout()}.table([]string{"VERSION", "NAME", "APPLIED"}, rows)
}

func printDone(cmd *cobra.Command, verb string, run func(context.Context) ([]string, error)) error {
	names, err := run(cmd.Context())
	if err != nil {
		return err
	}
	for _, name := range names {
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", verb, name)
	}
	if len(names) == 0 {
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), "nothing to do")
	}
	return nil
}
