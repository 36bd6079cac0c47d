package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"comet/internal/app"
	"comet/internal/config"
)

// newBackupCommand copies the SQLite database of a data directory.
func newBackupCommand() *cobra.Command {
	var path string
	var force bool
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Write a verified copy of the SQLite database to a file",
		Long: `Write a copy of the SQLite database in the data directory to a file. A server may run
on the data directory meanwhile: the copy holds everything that was acknowledged
when the backup started. The copy is opened and checked before it gets its name, so
the file is complete or missing. It contains hashes of tokens and the secrets of
webhooks; only its owner can read it.

PostgreSQL has its own tools: use pg_dump.`,
		Example: `  comet backup --output /backups/comet-$(date +%F).db`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadDatabase(cmd)
			if err != nil {
				return err
			}
			report, err := app.Backup(cmd.Context(), cfg, path, force)
			if err != nil {
				return err
			}
			say(cmd.OutOrStdout(), "backed up %s to %s: %s", report.Database, path, describeBackup(report))
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

// newRestoreCommand makes a backup the database of a data directory.
func newRestoreCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a backup the database of the data directory",
		Long: `Check a file that "comet backup" has written and make it the SQLite database of the
data directory. Stop the server first. A database that is there already is replaced
only with --force, and kept as comet.db.before-restore-TIME in the same directory.
An older schema is brought up to date when the server starts.

PostgreSQL has its own tools: use pg_restore.`,
		Example: `  comet restore /backups/comet-2026-11-23.db --force`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadDatabase(cmd)
			if err != nil {
				return err
			}
			report, err := app.Restore(cmd.Context(), cfg, args[0], force)
			if err != nil {
				return err
			}
			say(cmd.OutOrStdout(), "restored %s to %s: %s", args[0], report.Database, describeBackup(report))
			if report.Former != "" {
				say(cmd.OutOrStdout(), "the former database is %s", report.Former)
			}
			return nil
		},
	}
	addDatabaseFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "replace the database that is there, and keep it under another name")
	return cmd
}

func describeBackup(report app.BackupReport) string {
	return fmt.Sprintf("%d bytes, schema %d, verified", report.Bytes, report.Schema)
}

// addDatabaseFlags registers those flags of the server that decide which database it uses.
func addDatabaseFlags(cmd *cobra.Command) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Flags(all)
	for _, name := range []string{"config", "data", "database-url"} {
		cmd.Flags().AddFlag(all.Lookup(name))
	}
}

// loadDatabase reads the configuration with the flags of addDatabaseFlags.
func loadDatabase(cmd *cobra.Command) (config.Config, error) {
	return config.Load(config.Sources{Flags: cmd.Flags(), Environ: os.Environ()})
}
