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

// declaredEvents reads the constants of type EventType from the source of the models.
func declaredEvents(t *testing.T) (all []models.EventType) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../models/event.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == "EventType" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			all = append(all, models.EventType(text))
		}
		return true
	})
	return all
}
