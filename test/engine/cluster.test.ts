import { expect, onTestFinished, test, vi } from 'vitest'
import { TEMPLATE } from '../../src/engine/template.ts'
import { asAdmin, leftOf, newRef, specOf, useEngine } from './copy-projects.ts'

const { engine, cluster } = await useEngine()

test('a project is created while others rename and drop databases of theirs', async () => {
  const ref = newRef()
  const [open, renamed] = [`of_others_${newRef()}`, `of_others_${newRef()}`]
  const other = await asAdmin('postgres')
  onTestFinished(async () => {
    await other.end()
    await engine.remove(ref)
    await cluster.query(`drop database if exists ${renamed}`)
  })
  // Other tests create projects too, which close what they find open: they wait.
  const turn = `hashtextextended('${TEMPLATE}', 0)`
  await cluster.query(`select pg_advisory_lock(${turn})`)
  await cluster.query(`create database ${open}`)
  await other.query(`begin; alter database ${open} rename to ${renamed}`)
  await cluster.query(`select pg_advisory_unlock(${turn})`)

  const creating = engine.create(specOf(ref))
  creating.catch(() => {})
  const waiting = `select from pg_stat_activity where wait_event_type = 'Lock' and query ~ '^REVOKE ALL ON DATABASE ${open}'`
  await vi.waitFor(async () => expect((await cluster.query(waiting)).rows).toHaveLength(1), { timeout: 60_000 })
  await other.query('commit')

  await creating
  expect(await leftOf(ref)).not.toEqual([])
})

interface Step {
  'Node Type': string
  'Relation Name'?: string
  'Actual Loops': number
  Plans?: Step[]
}

const stepsOf = (step: Step): Step[] => [step, ...(step.Plans ?? []).flatMap(stepsOf)]

test('a project’s roles are looked up one by one without reading those of all projects each time', async () => {
  const ref = newRef()
  onTestFinished(() => engine.remove(ref))
  await engine.create(specOf(ref))
  const inside = await asAdmin(`p_${ref}`)
  onTestFinished(() => inside.end())
  await inside.query('begin')
  await inside.query(`do $$ begin for n in 1..2000 loop execute format('create role ${ref}_%s', n); end loop; end $$`)
  const { rows } = await inside.query(`
    explain (analyze, format json)
    select (select string_agg(rolname, ',') from aclexplode(acldefault('f', proowner)) left join pg_roles as role on role.oid = grantee)
      from (select proowner from pg_proc limit 50) as function`)
  const read = stepsOf(rows[0]['QUERY PLAN'][0].Plan).filter((step) => step['Relation Name'] === 'pg_authid')
  expect(read).not.toEqual([])
  for (const step of read.filter((step) => step['Node Type'] === 'Seq Scan')) expect(step['Actual Loops']).toBe(1)
})

test('the sweep of SQL sessions ends none that is young', async () => {
  expect(await engine.sweep()).toBe(0)
})
