// Command reference answers scenario files with the scheduler and the consolidation of sigs.k8s.io/karpenter.
// See README.md.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"runtime/pprof"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sigs.k8s.io/karpenter/pkg/operator/logging"
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, "reference:", err)
	os.Exit(1)
}

func writeJSON(path string, v any, indent bool) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	if indent {
		enc.SetIndent("", "  ")
	}
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		fail(err)
	}
	if path == "" || path == "-" {
		os.Stdout.Write(buf.Bytes())
		return
	}
	out := buf.Bytes()
	if strings.HasSuffix(path, ".gz") {
		var z bytes.Buffer
		zw := gzip.NewWriter(&z)
		zw.Write(out)
		zw.Close()
		out = z.Bytes()
	}
	if err := os.WriteFile(path, out, 0o644); err != nil {
		fail(err)
	}
}

func main() {
	log.SetLogger(logging.NopLogger)
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: reference schedule|consolidate|converge|snapshot|gen [flags] [scenario]")
		os.Exit(2)
	}
	cmd := os.Args[1]
	if cmd == "gen" {
		if err := gen(os.Args[2:]); err != nil {
			fail(err)
		}
		return
	}
	fs := flag.NewFlagSet(cmd, flag.ExitOnError)
	var (
		repeat   = fs.Int("repeat", 1, "schedule: number of runs, each with a new scheduler")
		timeout  = fs.Duration("timeout", 0, "limit of Solve (production: 1m); 0 = none")
		maxITs   = fs.Int("max-its", 20, "instance types listed per new node; 0 = all")
		summary  = fs.Bool("summary", false, "don't list nodes and pods")
		cl       = fs.String("client", "mem", "mem | fake (controller-runtime's, slow; for cross-checks)")
		methods  = fs.String("methods", "all", "consolidate/converge: all | empty | multi | single")
		maxCmds  = fs.Int("max-commands", 0, "converge: stop after as many commands; 0 = until nothing is found")
		budget   = fs.Duration("budget", 0, "converge: stop after this time; 0 = none")
		noPend   = fs.Bool("no-provision", false, "converge/consolidate: leave pending pods alone")
		verbose  = fs.Bool("verbose", false, "show events (why nodes can't be consolidated) and progress")
		out      = fs.String("o", "-", "output file")
		dump     = fs.String("dump", "", "write the resulting cluster as a scenario to this file")
		dropFrac = fs.Float64("drop", 0, "snapshot: fraction of the bound pods to remove from the dumped scenario")
		seed     = fs.Int64("seed", 1, "snapshot: seed of -drop")
		workers  = fs.Int64("workers", 0, "goroutines of the scheduler: overrides options.cpuRequestsMilli (1000 each)")
		prof     = fs.String("cpuprofile", "", "write a CPU profile")
	)
	fs.Parse(os.Args[2:])
	if fs.NArg() != 1 {
		fail(fmt.Errorf("expected one scenario file"))
	}
	sc, err := loadScenario(fs.Arg(0))
	if err != nil {
		fail(err)
	}
	if *workers > 0 {
		sc.Options.CPURequestsMilli = 1000 * *workers
	}
	e, err := newEnv(sc, *cl == "fake", *verbose)
	if err != nil {
		fail(err)
	}
	if *prof != "" {
		f, err := os.Create(*prof)
		if err != nil {
			fail(err)
		}
		pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	switch cmd {
	case "schedule":
		r, err := e.schedule(*repeat, *timeout, *maxITs, *summary)
		if err != nil {
			fail(err)
		}
		writeJSON(*out, r, true)
	case "snapshot":
		r, err := e.provision(*timeout, *maxITs)
		if err != nil {
			fail(err)
		}
		rng := rand.New(rand.NewSource(*seed))
		s, err := e.dump(func(p *corev1.Pod) bool { return rng.Float64() < *dropFrac })
		if err != nil {
			fail(err)
		}
		if *dump == "" {
			fail(fmt.Errorf("snapshot needs -dump"))
		}
		s.Name += "-snapshot"
		writeJSON(*dump, s, false)
		writeJSON(*out, r, true)
	case "consolidate", "converge":
		var p *ScheduleResult
		if !*noPend {
			if p, err = e.provision(*timeout, *maxITs); err != nil {
				fail(err)
			}
			if p.Pods == 0 {
				p = nil
			}
		}
		r, err := e.consolidate(*methods, *maxCmds, cmd == "converge", *maxITs, *summary, *budget, *verbose)
		if err != nil {
			fail(err)
		}
		r.Mode, r.Provision = cmd, p
		if *dump != "" {
			s, err := e.dump(nil)
			if err != nil {
				fail(err)
			}
			writeJSON(*dump, s, false)
		}
		writeJSON(*out, r, true)
	default:
		fail(fmt.Errorf("unknown command %q", cmd))
	}
}
