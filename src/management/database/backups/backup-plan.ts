import { PLANS, type Plan } from '../../../config.ts'

/** Days for which each plan keeps daily backups; the plan `free` has none. */
const DAILY_DAYS: Record<Plan, number> = { free: 0, pro: 7, team: 14, enterprise: 30, platform: 30 }

export const dailyBackupDays = (plan: Plan): number => DAILY_DAYS[plan]

export const PLANS_WITH_DAILY_BACKUPS = PLANS.filter((plan) => dailyBackupDays(plan) > 0)

/** Restore points on the plan `free` are kept as long as those of the smallest plan with daily backups. */
const DAYS_MIN = Math.min(...PLANS_WITH_DAILY_BACKUPS.map(dailyBackupDays))

/** Older backups are removed, with the WAL that only they needed. */
export const backupDaysKept = (plan: Plan): number => Math.max(dailyBackupDays(plan), DAYS_MIN)
