package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"comet/internal/app"
	"comet/internal/config"
	"comet/internal/telemetry"
)

// newServeCommand is "comet serve": it runs the server until SIGINT or SIGTERM, then drains.
func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the server. Without configuration it listens on 127.0.0.1:8080 and stores
everything in ./comet-data. After SIGTERM or Ctrl-C, requests in flight finish, then
the server stops with exit code 0.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), &telemetry.LogOptions{
				Level: cfg.Log.Level, Format: cfg.Log.Format, Formats: app.LogFormats(), Secrets: []string{cfg.AdminToken},
			})
			if err != nil {
				return err
			}
			collectGarbageLess()
			return app.Run(cmd.Context(), cfg, &app.Options{Logger: log, Build: telemetry.ReadBuild(version), Out: cmd.OutOrStdout()})
		},
	}
	config.Flags(cmd.Flags())
	return cmd
}

// newConfigCommand is "comet config".
func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration that the server would use",
		Long: `Print the configuration that "comet serve" would use with the same flags,
environment and file: each value with its source, secrets masked.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			text, err := cfg.Effective()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	config.Flags(cmd.Flags())
	return cmd
}

// newMigrateCommand holds "comet migrate".
func newMigrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Show or change the database's schema",
		Long: `Show or change the schema of the database that comet serve would use. The server
applies pending migrations itself when it starts. Use these commands to apply
them earlier, or to undo one.`,
	}
	config.Flags(cmd.PersistentFlags())
	cmd.AddCommand(
		migrateAction("status", "List the migrations and when they were applied", printStatus),
		migrateAction("up", "Apply every pending migration", func(cmd *cobra.Command, m *app.Migrations) error {
			return printDone(cmd, "applied", m.Up)
		}),
		migrateAction("down", "Undo the newest migration; the data of its tables is lost", func(cmd *cobra.Command, m *app.Migrations) error {
			return printDone(cmd, "undone", m.Down)
		}),
	)
	return cmd
}

func migrateAction(use, short string, run func(*cobra.Command, *app.Migrations) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return app.WithMigrations(cfg, use == "up", func(m *app.Migrations) error { return run(cmd, m) })
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

// newHealthcheckCommand is "comet healthcheck", for containers without a shell.
func newHealthcheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check that the server on this machine is alive",
		Long: `Check that the server at the address of --listen is alive; --server is not used.
Exit code 0 means that it is alive, 7 that it cannot be reached.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return checkHealth(cmd.Context(), cfg.Listen)
		},
	}
	config.Flags(cmd.Flags())
	return cmd
}

func checkHealth(ctx context.Context, listen string) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return &unreachableError{server: req.URL.Host, cause: errors.Unwrap(err)}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server responded %s", resp.Status)
	}
	return nil
}

func newVersionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		RunE: func(cmd *cobra.Command, _ []string) error {
			build := telemetry.ReadBuild(version)
			out, err := newOutput(cmd.OutOrStdout(), format, false)
			if err != nil {
				return err
			}
			body, err := json.Marshal(build)
			if err != nil {
				return err
			}
			return out.show(body, func() error {
				printLine(out.w, "%s", build.String())
				return nil
			})
		},
	}
	addOutputFlag(cmd.Flags(), &format)
	return cmd
}

// newBackupCommand copies the SQLite database of a data directory.
func newBackupCommand() *cobra.Command {
	var path string
	var force bool
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Write a verified copy of the SQLite database to a file",
		Long: `Write a copy of the SQLite database in the data directory to a file. A server may use
the data directory meanwhile: the copy contains all writes that were acknowledged
when the backup started. The copy is checked before it is renamed to FILE, so FILE is
never incomplete. It contains hashes of tokens and the secrets of webhooks; only its
owner can read it.

For PostgreSQL use pg_dump.`,
		Example: `  comet backup --output /backups/comet-$(date +%F).db`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			report, err := app.Backup(cmd.Context(), cfg, path, force)
			if err != nil {
				return err
			}
			printLine(cmd.OutOrStdout(), "backed up %s to %s: %s", report.Database, path, describeBackup(report))
			return nil
		},
	}
	addDatabaseFlags(cmd)
	cmd.Flags().StringVar(&path, "output", "", "`file` to write; its directory must exist")
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	if err := cmd.MarkFlagRequired("output"); err != nil {
		panic(err) // the flag is registered above
	}
	return cmd
}

// newRestoreCommand installs a backup as the database of a data directory.
func newRestoreCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Install a backup as the database of the data directory",
		Long: `Check a file that "comet backup" has written and install it as the SQLite database of
the data directory. Stop the server first. An existing database is replaced only with
--force; it is kept as comet.db.before-restore-TIME in the same directory. An older
schema is migrated when the server starts.

For PostgreSQL use pg_restore.`,
		Example: `  comet restore /backups/comet-2026-11-23.db --force`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			report, err := app.Restore(cmd.Context(), cfg, args[0], force)
			if err != nil {
				return err
			}
			printLine(cmd.OutOrStdout(), "restored %s to %s: %s", args[0], report.Database, describeBackup(report))
			if report.Former != "" {
				printLine(cmd.OutOrStdout(), "the former database is %s", report.Former)
			}
			return nil
		},
	}
	addDatabaseFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing database, and keep it under another name")
	return cmd
}

func describeBackup(report app.BackupReport) string {
	return fmt.Sprintf("%d bytes, schema %d, verified", report.Bytes, report.Schema)
}

// addDatabaseFlags registers the flags of the server that select its database.
func addDatabaseFlags(cmd *cobra.Command) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Flags(all)
	for _, name := range []string{"config", "data", "database-url"} {
		cmd.Flags().AddFlag(all.Lookup(name))
	}
}

// loadConfig reads the configuration of the server.
func loadConfig(cmd *cobra.Command) (config.Config, error) {
	return config.Load(config.Sources{Flags: cmd.Flags(), Environ: os.Environ()})
}
