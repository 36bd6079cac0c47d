package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"comet/internal/errs"
)

// recoverPanics turns a panic into a 500 and logs its stack. Where a part of the
// answer is out already the connection is cut, so that nobody takes half an
// answer for a whole one; http.ErrAbortHandler passes through for the same end.
// It stands directly inside accessLog, whose writer knows what is out.
func (p *responder) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			p.log.LogAttrs(r.Context(), slog.LevelError, "panic in a handler",
				slog.String("method", r.Method), slog.String("path", clipPath(r.URL.Path)),
				slog.String("panic", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
			if started, ok := w.(interface{ Status() int }); ok && started.Status() != 0 {
				panic(http.ErrAbortHandler)
			}
			p.writeProblem(w, r, http.StatusInternalServerError,
				knownError(r.Context(), errs.New(errs.Internal, "panic")))
		}()
		next.ServeHTTP(w, r)
	})
}
