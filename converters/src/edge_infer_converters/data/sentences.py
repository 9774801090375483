"""Sentences for a model of texts whose user gives no data: written for this project, short and long, plain and odd."""

#: As many as random inputs are drawn: everyday English first, then numbers, names, other scripts and rare signs.
SENTENCES = (
    "The train to Lyon leaves at half past seven from platform four.",
    "I have not slept well since we moved to the new flat.",
    "She put the kettle on and waited for the rain to stop.",
    "Is there a pharmacy near the station that is open on Sundays?",
    "The battery lasts about two days if the screen stays dark.",
    "Please send me the invoice before the end of the month.",
    "A good soup needs time, salt and somebody to eat it with.",
    "The film was far too long, and yet nobody left the room.",
    "Our cat refuses to drink from anything but the garden hose.",
    "How do I change the language of the keyboard?",
    "Nobody could explain why the lights went out on the whole street at once.",
    "Worst service I have ever had, and the food was cold as well.",
    "Absolutely lovely staff, clean rooms and a view of the harbour!",
    "The committee will vote on the budget after a short break.",
    "Scientists found water vapour in the atmosphere of a small planet.",
    "He runs ten kilometres every morning before work.",
    "Stocks fell by 3.2 percent on Monday, the most since March 2020.",
    "Dr Amara Okafor was born in Lagos in 1971 and studied in Vienna.",
    "Version 2.14.1 fixes a crash in `open_file()` when the path is empty.",
    "Call 0800 555 0199 or write to help@example.org, 9am to 5pm.",
    "if total > limit: raise ValueError(f'{total} is over {limit}')",
    "The parcel weighs 12.5 kg, measures 40 x 30 x 20 cm and costs \u20ac18.90 to send.",
    "Wo bekomme ich hier ein gutes St\u00fcck Apfelkuchen?",
    "Le mus\u00e9e est ferm\u00e9 le mardi, sauf pendant les vacances d'\u00e9t\u00e9.",
    "\u00bfCu\u00e1ntas horas dura el viaje hasta la costa?",
    "\u041f\u043e\u0435\u0437\u0434 \u043e\u043f\u043e\u0437\u0434\u0430\u043b \u043d\u0430 "
    "\u0447\u0435\u0442\u044b\u0440\u0435 \u043c\u0438\u043d\u0443\u0442\u044b.",
    "\u4eca\u65e5\u306f\u96e8\u304c\u964d\u3063\u3066\u3044\u307e\u3059\u3002",
    "\u8fd9\u672c\u4e66\u6bd4\u90a3\u672c\u4e66\u4fbf\u5b9c\u3002",
    "lol that was sooo funny \U0001f602\U0001f602 #monday",
    "Yes.",
    "WARNING: DO NOT OPEN THE COVER WHILE THE DRUM IS TURNING.",
    "In the old town, between the market hall and the river, there is a workshop where two brothers repair clocks by "
    "hand; they open at nine, close when the light fails, and keep a list of every clock that has passed over the "
    "bench since 1954, with the name of its owner, the fault that was found and the price that was paid for the work.",
)
