// Package template executes templates with the syntax of text/template: text, values, variables, if,
// with, range and functions. It does not call methods by their names as text/template does, because
// the linker keeps every exported method in a program that can reach such a call
// (docs/adr/0056-the-linker-removes-unused-methods.md).
package template

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template/parse"
)

// Execute returns the text that a template has for data: maps with the type map[string]any, structs,
// lists and scalars. funcs are functions with one result, or with a result and an error. A missing
// member is nil, also below another missing member. The output is not escaped; the function html
// escapes a value.
func Execute(text string, data any, funcs map[string]any) (string, error) {
	const name = "template"
	x := &execution{funcs: builtins(), vars: []variable{{"$", data}}}
	maps.Copy(x.funcs, funcs)
	trees, err := parse.Parse(name, text, "", "", x.funcs)
	if err != nil {
		return "", err
	}
	x.walk(trees[name].Root, data)
	return x.out.String(), x.err
}

type variable struct {
	name  string
	value any
}

type execution struct {
	funcs map[string]any
	vars  []variable // the innermost is the last
	out   strings.Builder
	err   error // the first one
}

// fail records an error at a node.
func (x *execution) fail(at parse.Node, format string, args ...any) {
	if x.err == nil {
		x.err = fmt.Errorf("template: %s: %s", at, fmt.Sprintf(format, args...))
	}
}

func (x *execution) walk(n parse.Node, dot any) {
	switch n := n.(type) {
	case *parse.ListNode:
		for _, node := range n.Nodes {
			x.walk(node, dot)
		}
	case *parse.TextNode:
		x.out.Write(n.Text)
	case *parse.ActionNode:
		v := x.pipe(n.Pipe, dot)
		switch {
		case len(n.Pipe.Decl) > 0:
			x.assign(n.Pipe, v)
		case v == nil:
			x.out.WriteString("<no value>")
		default:
			fmt.Fprint(&x.out, v)
		}
	case *parse.IfNode:
		x.branch(&n.BranchNode, dot)
	case *parse.WithNode:
		x.branch(&n.BranchNode, dot)
	case *parse.RangeNode:
		x.branch(&n.BranchNode, dot)
	default:
		x.fail(n, "this action is not supported")
	}
}

// assign declares the variables of a pipeline, or changes those that exist.
func (x *execution) assign(n *parse.PipeNode, values ...any) {
	for i, decl := range n.Decl {
		if n.IsAssign {
			x.find(decl.Ident[0]).value = values[i]
		} else {
			x.vars = append(x.vars, variable{decl.Ident[0], values[i]})
		}
	}
}

// find returns the innermost variable with a name. The parser has checked that it exists.
func (x *execution) find(name string) *variable {
	at := len(x.vars) - 1
	for x.vars[at].name != name {
		at--
	}
	return &x.vars[at]
}

// branch executes an action with an else. Variables that it declares end with it.
func (x *execution) branch(n *parse.BranchNode, dot any) {
	outer := len(x.vars)
	defer func() { x.vars = x.vars[:outer] }()
	v := x.pipe(n.Pipe, dot)
	if n.NodeType != parse.NodeRange {
		x.assign(n.Pipe, v)
	}
	switch {
	case !truth(v):
		if n.ElseList != nil {
			x.walk(n.ElseList, dot)
		}
	case n.NodeType == parse.NodeRange:
		for _, e := range x.entries(n, v) {
			x.assign(n.Pipe, e[2-len(n.Pipe.Decl):]...)
			x.walk(n.List, e[1])
			x.vars = x.vars[:outer]
		}
	case n.NodeType == parse.NodeWith:
		x.walk(n.List, v)
	default:
		x.walk(n.List, dot)
	}
}

// entries returns the keys and values of a list, or of a map in the order of its keys.
func (x *execution) entries(n *parse.BranchNode, v any) (all [][]any) {
	switch list := reflect.ValueOf(v); list.Kind() {
	case reflect.Slice:
		for i := range list.Len() {
			all = append(all, []any{int64(i), list.Index(i).Interface()})
		}
	case reflect.Map:
		keys := list.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		for _, key := range keys {
			all = append(all, []any{key.Interface(), list.MapIndex(key).Interface()})
		}
	default:
		x.fail(n, "%T is not a list or a map", v)
	}
	return all
}

// pipe returns the value of a pipeline: of an operand, or of a function.
func (x *execution) pipe(n *parse.PipeNode, dot any) any {
	args := n.Cmds[0].Args
	f, isCall := args[0].(*parse.IdentifierNode)
	if len(n.Cmds) > 1 || len(args) > 1 && !isCall {
		x.fail(n, "a pipeline must be a value or one function with arguments")
		return nil
	}
	if !isCall {
		return x.operand(args[0], dot)
	}
	values := make([]any, len(args)-1)
	for i, arg := range args[1:] {
		values[i] = x.operand(arg, dot)
	}
	return x.call(f, values)
}

func (x *execution) operand(n parse.Node, dot any) any {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return x.member(n, dot, n.Ident)
	case *parse.VariableNode:
		return x.member(n, x.find(n.Ident[0]).value, n.Ident[1:])
	case *parse.PipeNode:
		return x.pipe(n, dot)
	case *parse.StringNode:
		return n.Text
	case *parse.NumberNode:
		if n.IsInt {
			return n.Int64
		}
	}
	x.fail(n, "this operand is not supported")
	return nil
}

// member follows names from v.
func (x *execution) member(n parse.Node, v any, names []string) any {
	for _, name := range names {
		if object, ok := v.(map[string]any); ok || v == nil {
			v = object[name]
			continue
		}
		s := reflect.ValueOf(v)
		if s.Kind() != reflect.Struct || !s.FieldByName(name).IsValid() {
			x.fail(n, "%T has no member %s", v, name)
			return nil
		}
		v = s.FieldByName(name).Interface()
	}
	return v
}

func (x *execution) call(n *parse.IdentifierNode, args []any) any {
	f := reflect.ValueOf(x.funcs[n.Ident])
	t := f.Type()
	if len(args) != t.NumIn() && !t.IsVariadic() {
		x.fail(n, "the function takes %d arguments, not %d", t.NumIn(), len(args))
		return nil
	}
	in := make([]reflect.Value, len(args))
	for i, arg := range args {
		want := t.In(min(i, t.NumIn()-1))
		if t.IsVariadic() && i >= t.NumIn()-1 {
			want = want.Elem()
		}
		switch in[i] = reflect.ValueOf(arg); {
		case arg == nil && (want.Kind() == reflect.Interface || want.Kind() == reflect.Map):
			in[i] = reflect.Zero(want)
		case arg != nil && in[i].Type().AssignableTo(want):
		case in[i].CanInt() && reflect.Zero(want).CanInt(): // a constant
			in[i] = in[i].Convert(want)
		default:
			x.fail(n, "argument %d must be of type %s, not %T", i+1, want, arg)
			return nil
		}
	}
	out := f.Call(in)
	if len(out) > 1 && !out[1].IsNil() {
		x.fail(n, "%v", out[1])
	}
	return out[0].Interface()
}

// truth reports whether a value is neither empty nor zero.
func truth(v any) bool {
	switch v := reflect.ValueOf(v); v.Kind() {
	case reflect.Invalid:
		return false
	case reflect.Map, reflect.Slice, reflect.String:
		return v.Len() > 0
	default:
		return !v.IsZero()
	}
}

// builtins returns those functions of text/template that comet's templates use.
func builtins() map[string]any {
	first := func(args []any, is bool) any { // or the last argument
		if i := slices.IndexFunc(args, func(v any) bool { return truth(v) == is }); i >= 0 {
			return args[i]
		}
		return args[len(args)-1]
	}
	return map[string]any{
		"and":   func(v any, more ...any) any { return first(append([]any{v}, more...), false) },
		"or":    func(v any, more ...any) any { return first(append([]any{v}, more...), true) },
		"not":   func(v any) bool { return !truth(v) },
		"eq":    reflect.DeepEqual,
		"ne":    func(a, b any) bool { return !reflect.DeepEqual(a, b) },
		"html":  func(v any) string { return html.EscapeString(fmt.Sprint(v)) },
		"index": func(object map[string]any, name string) any { return object[name] },
		"slice": func(text string, from, to int) (string, error) {
			if from < 0 || from > to || to > len(text) {
				return "", fmt.Errorf("%q has no characters %d to %d", text, from, to)
			}
			return text[from:to], nil
		},
	}
}
