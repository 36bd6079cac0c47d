package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"reflect"
	"strconv"
	"strings"
)

// member is what swag forgets about a field of a struct.
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

// readFacts parses the Go files in dirs, tests aside.
func readFacts(dirs []string) (structs, error) {
	facts := structs{}
	embedded, names := map[string][]string{}, map[string]string{}
	for _, dir := range dirs {
		files, err := fs.Glob(os.DirFS(dir), "*.go")
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+name, nil, parser.SkipObjectResolution|parser.ParseComments)
			if err != nil {
				return nil, err
			}
			collect(file, facts, embedded, names)
		}
	}
	for name := range embedded {
		facts.flatten(name, embedded)
	}
	for schema, name := range names {
		facts[schema] = facts[name]
	}
	return facts, nil
}

func collect(file *ast.File, facts structs, embedded map[string][]string, names map[string]string) {
	pkg := file.Name.Name
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		body, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		name := pkg + "." + spec.Name.Name
		if schema := schemaName(spec); schema != "" {
			names[schema] = name
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
func (s structs) renamed(names map[string]string) structs {
	out := make(structs, len(names))
	for short, long := range names {
		generic, _, _ := strings.Cut(long, "-")
		if members, ok := s[generic]; ok {
			out[short] = members
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
