package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"comet/openapi/client"
)

// openDashboard opens the dashboard in the browser with a code that logs in, or prints its address.
func openDashboard(ctx context.Context, c *call) error {
	var code client.LoginCode
	if _, err := c.do(ctx, http.MethodPost, "/api/v1/logins/codes", nil, &code); err != nil {
		return err
	}
	address := strings.TrimSuffix(c.server, "/") + code.Path
	if opener := browserCommand(); !given[bool](c, "print") && opener != nil {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), opener[0], append(opener[1:], address)...)
		if cmd.Start() == nil { // the browser may run on after this program
			printLine(c.messages, "opening %s/ui/ in the browser; if nothing opens, run comet dashboard --print", strings.TrimSuffix(c.server, "/"))
			return cmd.Process.Release()
		}
	}
	return c.print(c.out.w, address)
}

// browserCommand returns the command that opens an address in the browser of this system, nil without a desktop.
func browserCommand() []string {
	switch runtime.GOOS {
	case "darwin":
		return []string{"open"}
	case "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	if os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY") == "" {
		return nil
	}
	return []string{"xdg-open"}
}
