package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// member has the properties of a struct field that swag omits.
type member struct {
	name string // in JSON
	// optional is set for omitempty and omitzero.
	optional bool
	// pointer is set where the encoder writes null for nil.
	pointer bool
	// format is the OpenAPI format of the value, or of each entry of a list.
	format string
	// minItems and maxItems bound a list; swag drops them where its entries are objects.
	minItems, maxItems *uint64
}

// structs maps a type, as package.Name, to its members in the order of the source.
type structs map[string][]member

// docs maps a type, as package.Name, to the text of its doc comment without its name.
type docs map[string]string

// routeNames maps a route, as "GET /path", to the name of the function whose comment describes it.
type routeNames map[string]string

// readFacts parses the Go files in dirs, tests aside.
func readFacts(dirs []string) (structs, docs, routeNames, error) {
	facts, texts, routes := structs{}, docs{}, routeNames{}
	embedded, names := map[string][]string{}, map[string]string{}
	for _, dir := range dirs {
		files, err := fs.Glob(os.DirFS(dir), "*.go")
		if err != nil {
			return nil, nil, nil, err
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+name, nil, parser.SkipObjectResolution|parser.ParseComments)
			if err != nil {
				return nil, nil, nil, err
			}
			collect(file, facts, texts, embedded, names)
			routes.collect(file)
		}
	}
	for name := range embedded {
		facts.flatten(name, embedded)
	}
	for schema, name := range names {
		facts[schema], texts[schema] = facts[name], texts[name]
	}
	return facts, texts, routes, nil
}

var routerAnnotation = regexp.MustCompile(`(?m)^\s*@Router\s+(\S+)\s+\[(\w+)\]`)

// collect adds the annotated functions of a file.
func (r routeNames) collect(file *ast.File) {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		for _, route := range routerAnnotation.FindAllStringSubmatch(f.Doc.Text(), -1) {
			r[strings.ToUpper(route[2])+" "+route[1]] = f.Name.Name
		}
	}
}

func collect(file *ast.File, facts structs, texts docs, embedded map[string][]string, names map[string]string) {
	pkg := file.Name.Name
	ast.Inspect(file, func(n ast.Node) bool {
		if decl, ok := n.(*ast.GenDecl); ok && len(decl.Specs) == 1 {
			if spec, ok := decl.Specs[0].(*ast.TypeSpec); ok && spec.Doc == nil {
				spec.Doc = decl.Doc
			}
		}
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		name := pkg + "." + spec.Name.Name
		texts[name] = typeDescription(spec)
		if schema := schemaName(spec); schema != "" {
			names[schema] = name
		}
		body, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		facts[name] = nil
		for _, field := range body.Fields.List {
			if len(field.Names) == 0 && jsonName(field) == "" {
				embedded[name] = append(embedded[name], qualified(pkg, field.Type))
				continue
			}
			if m, ok := memberOf(field); ok {
				facts[name] = append(facts[name], m)
			}
		}
		return true
	})
}

// typeDescription returns the first paragraph of a type's doc comment as a sentence without the
// type's name: "agentItem is an agent in a list." becomes "An agent in a list."
func typeDescription(spec *ast.TypeSpec) string {
	text, _, _ := strings.Cut(strings.TrimSpace(spec.Doc.Text()), "\n\n")
	text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), spec.Name.Name+" ")
	for _, verb := range []string{"is ", "are "} {
		text = strings.TrimPrefix(text, verb)
	}
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// schemaName returns the name after @name in the comment behind a type, which swag gives to
// the schema, or "".
func schemaName(spec *ast.TypeSpec) string {
	for line := range strings.Lines(spec.Comment.Text()) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "@name "); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}

// flatten puts the members of embedded structs first, as they stand at the head
// of the types that have any.
func (s structs) flatten(name string, embedded map[string][]string) {
	parents := embedded[name]
	delete(embedded, name)
	var inherited []member
	for _, p := range parents {
		s.flatten(p, embedded)
		inherited = append(inherited, s[p]...)
	}
	s[name] = append(inherited, s[name]...)
}

// renamed returns the facts under the names of the schemas.
func renamed[T any](facts map[string]T, names map[string]string) map[string]T {
	out := make(map[string]T, len(names))
	for short, long := range names {
		generic, _, _ := strings.Cut(long, "-")
		if fact, ok := facts[generic]; ok {
			out[short] = fact
		}
	}
	return out
}

func memberOf(field *ast.Field) (member, bool) {
	name := jsonName(field)
	if name == "" || name == "-" {
		return member{}, false
	}
	_, pointer := field.Type.(*ast.StarExpr)
	return member{
		name:     name,
		optional: jsonOption(field, "omitempty") || jsonOption(field, "omitzero"),
		pointer:  pointer,
		format:   format(field.Type),
		minItems: count(field, "minItems"),
		maxItems: count(field, "maxItems"),
	}, true
}

// tag returns the value of a field's tag, "" without one.
func tag(field *ast.Field, key string) string {
	if field.Tag == nil {
		return ""
	}
	text, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		return ""
	}
	return reflect.StructTag(text).Get(key)
}

// count returns the number in a tag, nil for none.
func count(field *ast.Field, key string) *uint64 {
	n, err := strconv.ParseUint(tag(field, key), 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

func jsonName(field *ast.Field) string {
	name, _, _ := strings.Cut(tag(field, "json"), ",")
	return name
}

func jsonOption(field *ast.Field, option string) bool {
	_, options, _ := strings.Cut(tag(field, "json"), ",")
	for o := range strings.SplitSeq(options, ",") {
		if o == option {
			return true
		}
	}
	return false
}

// format looks through pointers, lists, maps and type arguments.
func format(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return format(t.X)
	case *ast.ArrayType:
		return format(t.Elt)
	case *ast.MapType:
		return format(t.Value)
	case *ast.IndexExpr:
		return format(t.Index)
	case *ast.SelectorExpr:
		if qualified("", t) == "time.Time" {
			return "date-time"
		}
	case *ast.Ident:
		switch t.Name {
		case "int64", "uint64":
			return "int64"
		case "float64":
			return "double"
		}
	}
	return ""
}

func qualified(pkg string, t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return qualified(pkg, t.X)
	case *ast.IndexExpr:
		return qualified(pkg, t.X)
	case *ast.SelectorExpr:
		if x, ok := t.X.(*ast.Ident); ok {
			return x.Name + "." + t.Sel.Name
		}
	case *ast.Ident:
		return pkg + "." + t.Name
	}
	return ""
}
