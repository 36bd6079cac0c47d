package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"comet/internal/telemetry"
)

func submitTask(ctx context.Context, c *call) error {
	body, err := c.send(ctx)
	if err != nil {
		return err
	}
	if !given[bool](c, "wait") {
		c.failed = ""
		return c.printResponse(body)
	}
	var submitted struct{ ID string }
	if err := decode(body, &submitted); err != nil {
		return err
	}
	if body, err = c.waitFor(ctx, submitted.ID, 0); err != nil {
		return err
	}
	data, err := c.viewData(body)
	if err != nil {
		return err
	}
	if err := c.out.show(body, func() error {
		return c.copyOutput(c.httpRequest(ctx, http.MethodGet, "/api/v1/tasks/"+submitted.ID+"/output", http.Header{}, nil))
	}); err != nil {
		return err
	}
	return failure(c.failed, data)
}

func waitForTask(ctx context.Context, c *call) error {
	return c.printResult(c.waitFor(ctx, c.args[0], given[time.Duration](c, "timeout")))
}

// maxWait is the longest wait of one request; the server may allow less.
const maxWait = time.Minute

// waitFor requests a task again and again until it has ended or the timeout has passed; 0 is
// no timeout.
func (s *session) waitFor(ctx context.Context, id string, timeout time.Duration) (body []byte, err error) {
	for begin := time.Now(); ; {
		wait := maxWait
		if timeout > 0 {
			wait = max(min(wait, timeout-time.Since(begin)), 0)
		}
		var t struct {
			EndedAt *time.Time `json:"ended_at"`
		}
		seconds := int(math.Ceil(wait.Seconds()))
		body, err = s.do(ctx, http.MethodGet, fmt.Sprintf("/api/v1/tasks/%s?wait=%d", url.PathEscape(id), seconds), nil, &t)
		if err != nil || t.EndedAt != nil || wait == 0 {
			return body, err
		}
	}
}

func printTaskOutput(ctx context.Context, c *call) error {
	if given[bool](c, "log") {
		c.sent["stream"] = "log"
	}
	return c.copyOutput(c.newRequest(ctx))
}

// copyOutput requests a task's output and copies it to standard output unchanged, or escaped for a
// terminal. It returns err, the error of creating req, if err is not nil.
func (s *session) copyOutput(req *http.Request, err error) error {
	if err != nil {
		return err
	}
	body, err := s.stream(req)
	if err != nil {
		return err
	}
	defer body.Close()
	if telemetry.IsTerminal(s.out.w) {
		err = copyPrintable(s.out.w, body)
	} else {
		_, err = io.Copy(s.out.w, body)
	}
	if err != nil && req.Context().Err() == nil {
		err = fmt.Errorf("the output was cut off: %w", err)
	}
	return err
}

// plainWriter shows control characters instead of sending them to a terminal.
type plainWriter struct {
	to   io.Writer
	rest []byte // an incomplete character
	last rune
}

// Write implements io.Writer.
func (p *plainWriter) Write(text []byte) (int, error) {
	var out []byte
	all := append(p.rest, text...) //nolint:gocritic // the rest is taken
	for utf8.FullRune(all) {
		r, size := utf8.DecodeRune(all)
		if r == utf8.RuneError && size == 1 || isControl(r) && r != '\n' && r != '\t' {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, all[:size]...)
		}
		all, p.last = all[size:], r
	}
	p.rest = all
	_, err := p.to.Write(out)
	return len(text), err
}

// copyPrintable copies text to a terminal as it arrives, and ends its last line.
func copyPrintable(w io.Writer, r io.Reader) error {
	out := &plainWriter{to: w, last: '\n'}
	if _, err := io.Copy(out, r); err != nil {
		return err
	}
	if out.last == '\n' && len(out.rest) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s\n", strings.ToValidUTF8(string(out.rest), `\ufffd`))
	return err
}

// repairTable lists corrections that were made, then differences with their corrections.
const repairTable = "{{if or .corrections .differences}}AGENT\tSUM\tSTORED\tCOMPUTED\tWHERE\tCORRECTION\n" +
	"{{range .corrections}}" + repairRow + "corrected\n{{end}}" +
	"{{range .differences}}" + repairRow + "{{with .not_repairable}}none: {{.}}{{else}}{{.correction}}{{end}}\n{{end}}{{end}}"

const repairRow = "{{or .agent_id `-`}}\t{{.sum}}\t{{.stored}}\t{{.computed}}\t{{or .key `-`}}\t"

// verifyLedger verifies the ledger, lists the corrections, or makes them.
func verifyLedger(ctx context.Context, c *call) error {
	repair, yes := given[bool](c, "repair"), given[bool](c, "yes")
	switch {
	case yes && !repair:
		return usagef("--yes makes the corrections of --repair; give both")
	case yes:
		c.request, c.table = "POST /api/v1/ledger/repair", repairTable
		c.after += "\n{{with .total_corrections}}{{count . `correction was` `corrections were`}}{{else}}0 corrections were{{end}} made"
	case repair:
		c.table = repairTable
		c.after += "\n{{if .total_differences}}nothing was changed; add --yes to make the corrections{{end}}"
	}
	return sendAndShow(ctx, c)
}
