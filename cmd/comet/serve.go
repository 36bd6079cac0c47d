package main

import (
	"os"

	"github.com/spf13/cobra"

	"comet/internal/app"
	"comet/internal/config"
	"comet/internal/telemetry"
)

// newServeCommand runs the server until SIGINT or SIGTERM, then drains.
func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the server. With nothing configured it listens on 127.0.0.1:8080 and keeps
everything in ./comet-data. SIGTERM and Ctrl-C drain: requests in flight finish,
then the server stops with exit code 0.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(config.Sources{Flags: cmd.Flags(), Environ: os.Environ()})
			if err != nil {
				return err
			}
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), &telemetry.LogOptions{
				Level: cfg.Log.Level, Format: cfg.Log.Format, Secrets: []string{cfg.AdminToken},
			})
			if err != nil {
				return err
			}
			collectLess()
			return app.Run(cmd.Context(), cfg, &app.Options{Logger: log, Build: telemetry.ReadBuild(version), Out: cmd.OutOrStdout()})
		},
	}
	config.Flags(cmd.Flags())
	return cmd
}
