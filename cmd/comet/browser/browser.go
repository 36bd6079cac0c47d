// Package browser opens addresses in the browser of this machine.
package browser

import (
	"context"
	"os"
	"os/exec"
	"runtime"
)

// Open starts the browser with an address, and reports whether it could be started. The browser may run on
// after the program.
func Open(ctx context.Context, address string) bool {
	opener := []string{"xdg-open"}
	switch {
	case runtime.GOOS == "darwin":
		opener = []string{"open"}
	case runtime.GOOS == "windows":
		opener = []string{"rundll32", "url.dll,FileProtocolHandler"}
	case os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY") == "":
		return false // xdg-open would start a browser in the terminal
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), opener[0], append(opener[1:], address)...)
	return cmd.Start() == nil && cmd.Process.Release() == nil
}
