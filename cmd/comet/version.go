package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"comet/internal/telemetry"
)

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
				say(out.w, "%s", build.String())
				return nil
			})
		},
	}
	addOutputFlag(cmd.Flags(), &format)
	return cmd
}
