package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// declaredEvents reads the event types from the source of the packages events, workflow, store/pubsub, store/schedules, store/partials and live.
func declaredEvents(t *testing.T) (all []models.EventType) {
	t.Helper()
	for _, path := range []string{"../internal/events/types.go", "../internal/workflow/events.go", "../store/pubsub/pubsub.go", "../store/schedules/schedules.go", "../store/partials/partials.go", "../internal/events/live/live.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if name, ok := spec.Type.(*ast.SelectorExpr); ok && name.Sel.Name == "EventType" {
				text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				require.NoError(t, err)
				all = append(all, models.EventType(text))
			}
			return true
		})
	}
	return all
}
