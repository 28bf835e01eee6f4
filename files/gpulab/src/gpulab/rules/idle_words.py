"""The words of idle reclaim's mails and terminal lines in English and Chinese.

Names in braces are filled in by rules/idle_messages.py: `card` is one number or several, `command` a program, `minutes`
and `hours` numbers, `when` a time of day, `user` an account, `host` the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ENGLISH: Mapping[str, str] = {
    "subject": "[gpulab {host}] {title}",
    "subject more": "[gpulab {host}] {title} (and {count} more)",
    "hello": "Hello {recipient},",
    "row": "PID {pid}  {command}  card {card}  {memory}  idle since {since}",
    "row lease": "lease {lease}  {command} (PID {pid})  card {card}  nothing on it since {since}",
    "row unknown": "PID {pid}  {user}  {command}  card {card}  {memory}  CPU {cpu}  for at least {minutes} min",
    "row digest": "PID {pid}  {user}  {command}  card {card}  {memory}  idle since {since}  told {told}",
    "row digest lease": "lease {lease}  {user}  {command} (PID {pid})  card {card}  unused since {since}  told {told}",
    "row ended": "{when}  PID {pid}  {user}  {command}  card {card}  {memory}  idle since {since}",
    "warn title": "card {card}: do you still need it? {command} is idle",
    "warn": "These hold a card but have not used it for {minutes} minutes:",
    "warn enforce": "Without an answer they are ended at {when} or soon after: TERM first, KILL after {grace} s.",
    "warn notify": "Without an answer {admin} is told at {when}; nothing is ended.",
    "warn keep": "Still needed? Say so, for up to {hours} hours:",
    "warn end": "Not needed any more? End them:",
    "warn work": "If they work again by themselves, nothing happens.",
    "terminal": "gpulab: card {card}: {command} (PID {pid}) is idle since {since}. Keep: gpu-keep   End: kill {pid}",
    "ended title": "card {card}: {command} was idle and has been ended",
    "ended": "These held a card without using it, and no answer came by {when}:",
    "ended how": "They got TERM, and KILL after {grace} s where that was not enough. The cards are free for others.",
    "ended again": "To keep an idle program next time, answer the warning with gpu-keep.",
    "digest title": "idle cards: {count} to look at",
    "digest overdue": "Idle, and the owner did not answer:",
    "digest ended": "Ended because they were idle and the owner did not answer:",
    "digest stuck": "Could not be ended; look at them:",
    "digest unknown": "Unknown: NVML cannot measure these (MIG, or not supported), so they are never taken for idle:",
    "digest unknown do": "A program that also uses no CPU may be forgotten; ask its owner.",
    "digest foot": "Nothing new, no mail. Now: sudo gpulab reclaim --status. Exemptions: idle_reclaim_exempt_*.",
    "trouble title": "idle cards cannot be judged",
    "trouble nvml": "NVML does not answer: {reason}.",
    "trouble card": "Card {card} cannot be read: {reason}.",
    "trouble store": "The samples cannot be kept: {reason}.",
    "trouble damaged": "The store of samples was damaged: kept as {reason}, a new one begun. Delete it when seen.",
    "trouble meanwhile": "While this lasts nobody is warned on that account and nothing is ended. You are told once.",
    "memory unknown": "? GiB",
    "cpu unknown": "?",
    "more": "... and {count} more",
    "foot": "This is about cards that stand idle while others wait. The rules: {rules}. Questions: {admin}.",
}

CHINESE: Mapping[str, str] = {
    "subject": "[gpulab {host}] {title}",
    "subject more": "[gpulab {host}] {title}（另有 {count} 项）",
    "hello": "{recipient}，您好：",
    "row": "PID {pid}  {command}  {card} 号卡  {memory}  自 {since} 起空闲",
    "row lease": "租约 {lease}  {command}（PID {pid}）  {card} 号卡  自 {since} 起无程序使用",
    "row unknown": "PID {pid}  {user}  {command}  {card} 号卡  {memory}  CPU {cpu}  至少 {minutes} 分钟",
    "row digest": "PID {pid}  {user}  {command}  {card} 号卡  {memory}  自 {since} 起空闲  {told} 已通知",
    "row digest lease": "租约 {lease}  {user}  {command}（PID {pid}）  {card} 号卡  自 {since} 起未用  {told} 已通知",
    "row ended": "{when}  PID {pid}  {user}  {command}  {card} 号卡  {memory}  自 {since} 起空闲",
    "warn title": "{card} 号卡：{command} 处于空闲，还需要吗？",
    "warn": "以下程序占着显卡，但已有 {minutes} 分钟没有使用：",
    "warn enforce": "如无答复，将于 {when} 或稍后结束它们：先发 TERM，{grace} 秒后发 KILL。",
    "warn notify": "如无答复，将于 {when} 告知 {admin}；不会结束任何程序。",
    "warn keep": "如仍需要，请答复（最长 {hours} 小时）：",
    "warn end": "如已不需要，请结束它们：",
    "warn work": "如果它们自行恢复工作，则不会有任何影响。",
    "terminal": "gpulab：{card} 号卡：{command}（PID {pid}）自 {since} 起空闲。保留：gpu-keep    结束：kill {pid}",
    "ended title": "{card} 号卡：{command} 因空闲已被结束",
    "ended": "以下程序占着显卡而未使用，且到 {when} 没有收到答复：",
    "ended how": "系统先发 TERM，仍未结束的在 {grace} 秒后发 KILL。显卡现在可供他人使用。",
    "ended again": "下次如需保留空闲的程序，请在收到提醒后运行 gpu-keep。",
    "digest title": "空闲显卡：{count} 项需要查看",
    "digest overdue": "空闲且使用者未答复：",
    "digest ended": "因空闲且使用者未答复而被结束：",
    "digest stuck": "无法结束，请查看：",
    "digest unknown": "未知：NVML 无法测量这些程序（MIG 或不支持），因此永远不会当作空闲：",
    "digest unknown do": "如果程序同时也不使用 CPU，可能已被遗忘，请询问使用者。",
    "digest foot": "没有新情况就不发邮件。当前状态：sudo gpulab reclaim --status。豁免：idle_reclaim_exempt_*。",
    "trouble title": "无法判断显卡是否空闲",
    "trouble nvml": "NVML 没有响应：{reason}。",
    "trouble card": "无法读取 {card} 号卡：{reason}。",
    "trouble store": "无法保存采样：{reason}。",
    "trouble damaged": "采样库已损坏；损坏的文件保存为 {reason}，并已新建采样库。查看后请删除。",
    "trouble meanwhile": "在此期间不会因此提醒任何人，也不会结束任何程序。此情况只通知一次。",
    "memory unknown": "? GiB",
    "cpu unknown": "?",
    "more": "……另有 {count} 项",
    "foot": "显卡闲置时，其他人可能正在等待。使用规则：{rules}。如有疑问请联系 {admin}。",
}

WORDS: Mapping[str, Mapping[str, str]] = {"en": ENGLISH, "zh": CHINESE}
"""By `lab.language` of the settings."""
