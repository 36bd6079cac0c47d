package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// route is the registration of a handler with the router.
type route struct {
	method, path string
	secured      bool
	scopes       []string // alternatives
	once         bool     // it may have an Idempotency-Key
}

// annotateRoutes copies the Go files of a folder to another one. A handler that the router
// registers, in a call such as r.With(scope).Get("/path", handler), gets the annotations that
// follow from the registration: @Router, @Security and the parameter Idempotency-Key.
func annotateRoutes(from, to string) error {
	names, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		return err
	}
	texts, files := map[string][]byte{}, map[string]*ast.File{}
	set := token.NewFileSet()
	found := registrations{map[string]*ast.FuncDecl{}, map[string][]string{}, map[string]route{}}
	var secrets []string // types that a repeated Idempotency-Key returns without their secret
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if texts[name], err = os.ReadFile(name); err != nil {
			return err
		}
		if files[name], err = parser.ParseFile(set, name, texts[name], parser.SkipObjectResolution|parser.ParseComments); err != nil {
			return err
		}
		for _, decl := range files[name].Decls {
			switch f, ok := decl.(*ast.FuncDecl); {
			case !ok:
			case f.Name.Name == "withoutSecret":
				secrets = append(secrets, qualified("", f.Recv.List[0].Type)[1:])
			case strings.Contains(f.Doc.Text(), "@Summary") && !strings.Contains(f.Doc.Text(), "@Router"):
				found.handlers[f.Name.Name] = f
			}
		}
	}
	for _, file := range files {
		found.find(file, false)
	}
	for name, file := range files {
		text := found.annotate(texts[name], set, file, secrets)
		if err := os.WriteFile(filepath.Join(to, filepath.Base(name)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// registrations finds the routes of handlers.
type registrations struct {
	handlers map[string]*ast.FuncDecl
	scopes   map[string][]string // by the variable of the middleware that requires them
	routes   map[string]route    // by the name of the handler
}

// find adds the routes below a node. secured reports that its routes require a token.
func (r registrations) find(node ast.Node, secured bool) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			r.find(n.Body, secured || mentions(n.Body, "authenticate"))
			return false
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if name, ok := left.(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) {
					r.scopes[name.Name] = requiredScopes(n.Rhs[i])
				}
			}
		case *ast.CallExpr:
			r.add(n, secured)
		}
		return true
	})
}

// add adds the route that a call registers, if it does.
func (r registrations) add(call *ast.CallExpr, secured bool) {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) != 2 {
		return
	}
	path, ok := call.Args[0].(*ast.BasicLit)
	if !ok || !strings.HasPrefix(path.Value, `"/`) {
		return
	}
	out := route{method: strings.ToLower(fun.Sel.Name), path: strings.Trim(path.Value, `"`), secured: secured}
	if with, ok := fun.X.(*ast.CallExpr); ok && len(with.Args) == 1 {
		out.scopes = requiredScopes(with.Args[0])
		if name, ok := with.Args[0].(*ast.Ident); ok {
			out.scopes = r.scopes[name.Name]
		}
	}
	for name, handler := range r.handlers {
		if mentions(call.Args[1], name) {
			out.once = mentions(call.Args[1], "once") || mentions(handler.Body, "runOnce")
			r.routes[name] = out
		}
	}
}

// mentions reports whether a name occurs below a node.
func mentions(node ast.Node, name string) (found bool) {
	ast.Inspect(node, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name
		return !found
	})
	return found
}

var capital = regexp.MustCompile(`\B[A-Z]`)

// requiredScopes returns the scopes that an expression names, such as agents:read for
// models.ScopeAgentsRead. One of them is sufficient. agents:write includes agents:read.
func requiredScopes(node ast.Node) (scopes []string) {
	ast.Inspect(node, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if name, ok := strings.CutPrefix(id.Name, "Scope"); ok {
				scopes = append(scopes, strings.ToLower(capital.ReplaceAllString(name, ":$0")))
			}
		}
		return true
	})
	if slices.Contains(scopes, "agents:read") {
		scopes = append(scopes, "agents:write")
	}
	return scopes
}

// annotate returns the text of a file with the annotations of its routes.
func (r registrations) annotate(text []byte, set *token.FileSet, file *ast.File, secrets []string) []byte {
	var out []byte
	done := 0
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || r.handlers[f.Name.Name] != f || r.routes[f.Name.Name].path == "" {
			continue
		}
		for _, line := range f.Doc.List {
			if !strings.Contains(line.Text, "@Summary") {
				continue
			}
			at := set.Position(line.Pos()).Offset
			out = append(append(out, text[done:at]...), r.routes[f.Name.Name].annotations(f.Doc.Text(), secrets)...)
			done = at
		}
	}
	return append(out, text[done:]...)
}

// annotations returns the lines that follow from a route; doc is the comment of its handler.
func (r route) annotations(doc string, secrets []string) string {
	lines := "//\t@Router\t" + r.path + " [" + r.method + "]\n"
	switch {
	case len(r.scopes) > 0:
		lines += "//\t@Security\tBearerAuth[" + strings.Join(r.scopes, ",") + "]\n"
	case r.secured:
		lines += "//\t@Security\tBearerAuth\n"
	default:
		lines += "//\t@Security\n"
	}
	if r.once && !strings.Contains(doc, "Idempotency-Key\theader") {
		text := "Unique key that makes the request safe to retry: for 24 hours a repetition returns the stored response"
		if slices.ContainsFunc(secrets, func(name string) bool { return strings.Contains(doc, name) }) {
			text += ", without the secret"
		}
		lines += "//\t@Param\tIdempotency-Key\theader\tstring\tfalse\t" + strconv.Quote(text) + "\tmaxlength(255)\n"
	}
	return lines
}
