package main

import (
	"os"

	"github.com/spf13/cobra"

	"comet/internal/config"
)

// newConfigCommand prints what "comet serve" would run with.
func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration the server would run with",
		Long: `Print the configuration that "comet serve" would run with, given the same flags,
environment and file: each value with its source, secrets masked.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(config.Sources{Flags: cmd.Flags(), Environ: os.Environ()})
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
