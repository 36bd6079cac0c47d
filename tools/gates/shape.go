package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"sort"
)

// checkShape counts files and exported names of each package, and how many of the references
// between its files point against the best reading order.
func checkShape(t *tree) ([]finding, error) {
	packages := packagesOf(t.production())
	folders := make([]string, 0, len(packages))
	for p := range packages {
		folders = append(folders, p)
	}
	sort.Strings(folders)
	var found []finding
	for _, p := range folders {
		files, err := parsePackage(t.root, packages[p])
		if err != nil {
			return nil, err
		}
		found = append(found, t.over("shape-files", p, len(files), maxFiles, "files")...)
		limit := maxExported
		if p == modelsPackage {
			limit = maxModelNames
		}
		found = append(found, t.over("shape-names", p, exportedNames(files), limit, "exported names")...)
		all, up := references(files)
		if all >= 12 && up*maxUpwardShare > all {
			percent := up * 100 / all
			found = append(found, t.over("shape-upward", p, percent, 100/maxUpwardShare, "percent of the references between files point up")...)
		}
	}
	return found, nil
}

func parsePackage(root string, names []string) (map[string]*ast.File, error) {
	files := map[string]*ast.File{}
	set := token.NewFileSet()
	for _, n := range names {
		f, err := parser.ParseFile(set, filepath.Join(root, n), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files[n] = f
	}
	return files, nil
}

// exportedNames counts the package-level names: constants, variables, types and functions.
// Methods and fields belong to their type.
func exportedNames(files map[string]*ast.File) int {
	n := 0
	for _, f := range files {
		for name := range declared(f) {
			if ast.IsExported(name) {
				n++
			}
		}
	}
	return n
}

// declared returns the package-level names of a file, without methods.
func declared(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name != "init" && d.Name.Name != "_" {
				names[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, id := range s.Names {
						if id.Name != "_" {
							names[id.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}

// references counts the pairs of files of which one uses a name of the other, and how many of
// them point up in the order that makes that number small.
func references(files map[string]*ast.File) (all, up int) {
	home := map[string]string{}
	for _, file := range sortedNames(files) { // files of other systems declare the same names
		for name := range declared(files[file]) {
			home[name] = file
		}
	}
	methods := methodHomes(files)
	uses := map[string]map[string]bool{}
	for file, f := range files {
		uses[file] = map[string]bool{}
		var visit func(n ast.Node) bool
		visit = func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr: // the selected name is a field, a method or another package's
				if h := methods[n.Sel.Name]; h != "" && h != file {
					uses[file][h] = true
				}
				ast.Inspect(n.X, visit)
				return false
			case *ast.FuncDecl: // its name is declared here
				for _, part := range funcParts(n) {
					ast.Inspect(part, visit)
				}
				return false
			case *ast.Field: // so are the names of fields and parameters
				ast.Inspect(n.Type, visit)
				return false
			case *ast.CompositeLit:
				inspectLiteral(n, visit)
				return false
			case *ast.Ident:
				if h := home[n.Name]; h != "" && h != file {
					uses[file][h] = true
				}
			}
			return true
		}
		ast.Inspect(f, visit)
		all += len(uses[file])
	}
	return all, upward(readingOrder(uses), uses)
}

// funcParts returns the parts of a function that use names.
func funcParts(f *ast.FuncDecl) []ast.Node {
	parts := []ast.Node{f.Type}
	if f.Recv != nil {
		parts = append(parts, f.Recv)
	}
	if f.Body != nil {
		parts = append(parts, f.Body)
	}
	return parts
}

// inspectLiteral visits the names that a composite literal uses. The keys of a struct literal are
// names of fields.
func inspectLiteral(lit *ast.CompositeLit, visit func(ast.Node) bool) {
	if lit.Type != nil {
		ast.Inspect(lit.Type, visit)
	}
	_, isMap := lit.Type.(*ast.MapType)
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if _, isName := kv.Key.(*ast.Ident); !isName || isMap {
				ast.Inspect(kv.Key, visit)
			}
			e = kv.Value
		}
		ast.Inspect(e, visit)
	}
}

// methodHomes returns the file of each unexported method whose name is unique in the package:
// without types these are the ones that a selector certainly means.
func methodHomes(files map[string]*ast.File) map[string]string {
	home := map[string]string{}
	seen := map[string]int{}
	for _, file := range sortedNames(files) {
		for _, d := range files[file].Decls {
			if m, ok := d.(*ast.FuncDecl); ok && m.Recv != nil && !m.Name.IsExported() {
				home[m.Name.Name] = file
				seen[m.Name.Name]++
			}
		}
	}
	for name, n := range seen {
		if n > 1 {
			delete(home, name)
		}
	}
	return home
}

func sortedNames(files map[string]*ast.File) []string {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// readingOrder puts users before what they use as far as cycles allow. It starts with greedyOrder
// and moves single files as long as that removes references that point up.
func readingOrder(uses map[string]map[string]bool) []string {
	order := greedyOrder(uses)
	for best, improved := upward(order, uses), true; improved; {
		improved = false
		for from := range order {
			for to := range order {
				moved := slices.Insert(slices.Delete(slices.Clone(order), from, from+1), to, order[from])
				if n := upward(moved, uses); n < best {
					order, best, improved = moved, n, true
				}
			}
		}
	}
	return order
}

// greedyOrder repeatedly takes the file that no remaining file uses or, in a cycle, the one with
// the most uses over users.
func greedyOrder(uses map[string]map[string]bool) []string {
	rest := map[string]bool{}
	for f := range uses {
		rest[f] = true
	}
	var order []string
	for len(rest) > 0 {
		best, bestScore := "", 0
		for f := range rest {
			in, out := 0, 0
			for g := range rest {
				if uses[g][f] {
					in++
				}
				if uses[f][g] {
					out++
				}
			}
			score := out - in
			if in == 0 {
				score += 1000
			}
			if best == "" || score > bestScore || score == bestScore && f < best {
				best, bestScore = f, score
			}
		}
		order = append(order, best)
		delete(rest, best)
	}
	return order
}

func upward(order []string, uses map[string]map[string]bool) int {
	at := map[string]int{}
	for i, f := range order {
		at[f] = i
	}
	n := 0
	for f, used := range uses {
		for g := range used {
			if at[g] < at[f] {
				n++
			}
		}
	}
	return n
}
