import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import * as z from 'zod'
import { Config } from '../../src/config.ts'

interface Property {
  default?: unknown
  type?: string
  format?: string
  const?: string
  enum?: string[]
  minimum?: number
  maximum?: number
  anyOf?: Property[]
}

/** The columns `type` and `default` of the page, from the schema of a setting. */
function rowOf(name: string, property: Property, isRequired: boolean): string {
  const quote = (value: unknown) => `\`${value}\``
  const fallback = property.default === undefined ? (isRequired ? 'required' : 'none') : quote(property.default)
  const { type, format, enum: values, minimum, maximum } = property.anyOf?.[0] ?? property
  if (values) return `${name} | ${values.filter(Boolean).map(quote).join(', ')} | ${fallback}`
  if (type === 'number' || type === 'integer') return `${name} | ${minimum} to ${maximum} | ${fallback}`
  return `${name} | ${format === 'uri' ? 'URL' : 'text'} | ${fallback}`
}

/** If this fails, change the row of the setting in docs/configuration.md. */
it('the page documents each setting of the Worker with its type and default, and no other', () => {
  const { oneOf: drivers = [] } = z.toJSONSchema(Config, { io: 'input', unrepresentable: 'any' })
  const expected = new Set<string>()
  for (const { properties = {}, required = [] } of drivers as z.core.JSONSchema.JSONSchema[]) {
    for (const [name, property] of Object.entries(properties)) {
      if (name !== 'ENGINE') expected.add(rowOf(name, property as Property, required.includes(name)))
    }
  }
  const values = drivers.map((driver) => `\`${(driver.properties?.ENGINE as Property | undefined)?.const}\``)
  expected.add(`ENGINE | ${values.join(', ')} | required`)
  const rows = readFileSync('docs/configuration.md', 'utf8').matchAll(/^\| `(\w+)` \| (.*?) \| (.*?) \| .* \|$/gm)
  const documented = Array.from(rows, ([, name, type, fallback]) => `${name} | ${type} | ${fallback}`)
  expect(documented.toSorted()).toEqual([...expected].toSorted())
})
