import { describe, expect, it } from 'vitest'
import { problemOfTemplate } from '../../../src/management/service-config/auth-config/template.ts'
import templates from '../../support/go-templates.json' with { type: 'json' }

const LENGTH_MAX = 200_000

describe('a template of a mail', () => {
  it.each([
    '',
    'no action, and }} alone',
    '{{ .Token }}{{.Data.name}}{{- .Email -}} {{$}}{{ $.Email }}',
    '{{/* said to nobody {{ */}}{{- /* nor this */ -}}',
    '{{ if eq .Provider "github" }}a{{ else if and .Email (not .Phone) }}b{{ else }}c{{ end }}',
    '{{ with $name := .Data.name }}{{ $name | html }}{{ end }}',
    '{{ range $i, $one := .Data.list }}{{ if gt $i 3 }}{{ break }}{{ end }}{{ $one.x }}{{ else }}none{{ end }}',
    '{{ define "x" }}{{ . }}{{ end }}{{ template "x" .Data }}{{ block "y" . }}{{ end }}',
    '{{ printf "%s }} \\"" .Email }}{{ `raw }}` }}{{ 1.5e3 }}{{ -1 }}{{ true }}',
  ])('may be %j', (text) => {
    expect(problemOfTemplate(text)).toBeUndefined()
  })

  it.each([
    ['{{ .Code', 'not closed'],
    ['{{ .Code }', 'unexpected'],
    ['{{}}', 'empty'],
    ['{{ end }}', 'ends nothing'],
    ['{{ if .A }}', 'has no {{ end }}'],
    ['{{ if }}{{ end }}', 'empty'],
    ['{{ else }}', 'belongs to nothing'],
    ['{{ if . }}{{ else }}{{ else }}{{ end }}', 'more than one'],
    ['{{ if . }}{{ else x }}{{ end }}', 'stands alone'],
    ['{{ break }}', 'outside of {{ range }}'],
    ['{{ Code }}', 'function "Code" is not defined'],
    ['{{ .A | upper }}', 'function "upper" is not defined'],
    ['{{ .A | "x" }}', 'cannot be called'],
    ['{{ .A | | .B }}', 'empty'],
    ['{{ (.A }}', 'not closed'],
    ['{{ .A) }}', 'unexpected )'],
    ['{{ "open }}', 'unexpected'],
    ['{{ $x }}', 'undefined variable $x'],
    ['{{ .A := 1 }}', 'unexpected :='],
    ['{{ .A, .B }}', 'unexpected ,'],
    ['{{ template .A }}', 'no name'],
    ['{{ if . }}{{ define "x" }}{{ end }}{{ end }}', 'inside of another'],
    ['{{/* never ends', 'comment'],
    ['{{ .A ; }}', 'unexpected'],
  ])('may not be %j', (text, problem) => {
    expect(problemOfTemplate(text)).toContain(problem)
  })

  it.each([
    ['{{ .A\u00a0}}', 'unexpected'],
    ['{{ if . }}{{ $x := 1 }}{{ end }}{{ $x }}', 'undefined variable $x'],
    ['{{ range $a, $b, $c := . }}{{ end }}', 'unexpected , after $b'],
    ['{{ with $a, $b := . }}{{ end }}', 'unexpected , after $a'],
    ['{{ "\\q" }}', 'unexpected'],
    ['{{ .A. }}', 'unexpected'],
    ['{{ .A..B }}', 'unexpected'],
    ['{{ range . }}{{ else }}{{ break }}{{ end }}', 'outside of {{ range }}'],
    ['{{ define "x" }}a{{ end }}{{ define `x` }}b{{ end }}', 'template "x" is defined twice'],
  ])('may not be %j either', (text, problem) => {
    expect(problemOfTemplate(text)).toContain(problem)
  })

  it('is what Go 1.19 parses, and nothing else', () => {
    expect(templates.accepted.filter((text) => problemOfTemplate(text) !== undefined)).toEqual([])
    expect(templates.refused.filter((text) => problemOfTemplate(text) === undefined)).toEqual([])
  })

  it('may say {{ else with }}, as from Go 1.23 on', () => {
    expect(problemOfTemplate('{{ with .A }}a{{ else with .B }}b{{ else }}c{{ end }}')).toBeUndefined()
    expect(problemOfTemplate('{{ if .A }}a{{ else with .B }}b{{ end }}')).toContain('stands alone')
  })

  it('may not take long to be read, nor more room than there is', () => {
    expect(problemOfTemplate(`{{ ${'('.repeat(50_000)} }}`)).toContain('too many parentheses')
    expect(problemOfTemplate(`{{ print ${'(.A) '.repeat(5_000)} }}`)).toBeUndefined()
    const started = performance.now()
    const parts = [
      '{{',
      '{{ .A | ',
      '{{ "',
      '{{ if . }}',
      '{{/*',
      ' ',
      '{{ - ',
      '{{ 1',
      '{{ 1_',
      '{{ "\\',
      '{{ $a := 1 }}',
      '.A',
      '{{ a ',
    ]
    for (const part of parts) {
      problemOfTemplate(part.repeat(LENGTH_MAX / part.length))
      problemOfTemplate(`{{ ${part.repeat(LENGTH_MAX / part.length)} }}`)
    }
    // Minutes, were each read up to its end from each of its places.
    expect(performance.now() - started).toBeLessThan(30_000)
  })
})
